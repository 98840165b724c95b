package capacity

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// world is the start of a simulation: the state with the scenario's settings, nodes and
// reservations, and the pools.
type world struct {
	// today is the state as read.
	today *state.State
	*state.State
	config blocks.IPAMConfig
	pools  []*state.Pool
	// rebuilt are pools that replace a pool of the same CIDR. All addresses of the old pool
	// are assigned again.
	rebuilt []*state.Pool
	// joining are the names of the joining nodes.
	joining []string
	// stopped reports whether the simulation must end early.
	stopped func() bool
	// kinds groups today's pods; shares describes how further pods are spread. Both are
	// computed on first use. starts is shared by all runs.
	kinds  *kinds
	shares []share
	starts starts
	// trial is true if only Outcome.Fits matters.
	trial bool
}

// assume returns the world of a scenario. The error names the invalid part of the scenario.
func assume(st *state.State, q *Scenario) (*world, error) {
	s := st.Snapshot.Clone()
	w := &world{today: st, starts: starts{}}
	if err := errors.Join(w.settings(s, q), w.nodes(s, q), addPools(s, q), reserve(s, q)); err != nil {
		return nil, err
	}
	w.State = state.New(s, state.Options{Grace: st.Grace})
	w.config, w.pools = w.IPAM, w.Pools
	for _, p := range w.Pools {
		if p.NodeSelection.Err != nil && st.PoolByNameOrCIDR(p.Name) == nil {
			return nil, fmt.Errorf("the selector of pool %s: %w", p.CIDR, p.NodeSelection.Err)
		}
	}
	q.BlockSizes = slices.Clone(q.BlockSizes)
	for i := range q.BlockSizes {
		if err := w.resize(&q.BlockSizes[i]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) settings(s *blocks.Snapshot, q *Scenario) error {
	if q.StrictAffinity != nil {
		s.IPAM.StrictAffinity = *q.StrictAffinity
	}
	if q.MaxBlocks != nil {
		if s.IPAM.MaxBlocksPerHost = *q.MaxBlocks; *q.MaxBlocks < 1 {
			return fmt.Errorf("a node must be allowed at least 1 block, not %d", *q.MaxBlocks)
		}
	}
	if why := s.IPAM.Rejected(); why != "" && (q.StrictAffinity != nil || q.MaxBlocks != nil) {
		return fmt.Errorf("Calico rejects these settings: %s", why) //nolint:staticcheck // a name
	}
	return nil
}

// nodes removes the scenario's removed nodes and their pods from a snapshot, and adds
// joining nodes with the labels that Kubernetes sets.
func (w *world) nodes(s *blocks.Snapshot, q *Scenario) error {
	switch {
	case q.AddNodes < 0 || q.MaxNodes < 0 || q.PodsPerNode < 0 || q.Pods < 0:
		return errors.New("numbers of nodes and pods must not be negative")
	case q.MaxNodes > 0:
		q.AddNodes = max(0, q.MaxNodes-(len(s.Nodes)-len(q.RemoveNodes)))
	}
	switch {
	case q.AddNodes == 0 && q.MaxNodes == 0 && (len(q.NodeLabels) > 0 || q.PodsPerNode > 0):
		return errors.New("labels and pods of nodes that join are given, but no node joins")
	case q.AddNodes > maxNodes || q.Pods > maxPods || q.PodsPerNode > maxPods/max(q.AddNodes, 1):
		return fmt.Errorf("at most %d nodes and %d pods can be simulated", maxNodes, maxPods)
	}
	for i, name := range q.RemoveNodes {
		if slices.Contains(q.RemoveNodes[:i], name) {
			return fmt.Errorf("node %q is listed twice for removal", name)
		}
		if h := w.today.NodeState(name); h == nil || h.Node == nil {
			return fmt.Errorf("node %q does not exist", name)
		}
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n blocks.Node) bool { return n.Name == name })
		s.Workloads = slices.DeleteFunc(s.Workloads, func(p *blocks.Workload) bool { return p.Node == name })
	}
	name := newNames(w.today)
	for range q.AddNodes {
		n := newNode(name(), q.NodeLabels)
		w.joining = append(w.joining, n.Name)
		s.Nodes = append(s.Nodes, *n)
	}
	return nil
}

// newNames returns a generator of node names that do not exist.
func newNames(st *state.State) func() string {
	i := 0
	return func() string {
		for {
			i++
			if name := fmt.Sprintf("new-%d", i); st.NodeState(name) == nil {
				return name
			}
		}
	}
}

// Limits of a simulation, which keeps each pod in memory.
const (
	maxNodes = 100_000
	maxPods  = 5_000_000
)

// newNode returns a joining node.
func newNode(name string, labels map[string]string) *blocks.Node {
	all := map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
	maps.Copy(all, labels)
	return &blocks.Node{Meta: blocks.Meta{Name: name}, Labels: all, Windows: all["kubernetes.io/os"] == "windows"}
}

func addPools(s *blocks.Snapshot, q *Scenario) error {
	for i, n := range q.AddPools {
		if n.CIDR != n.CIDR.Masked() {
			return fmt.Errorf("pool %s has bits set beyond its prefix: write %s", n.CIDR, n.CIDR.Masked())
		}
		if err := checkBlockSize(n.CIDR, n.BlockSize); err != nil {
			return err
		}
		for j := range s.Pools {
			if s.Pools[j].CIDR.Overlaps(n.CIDR) {
				return fmt.Errorf("pool %s overlaps pool %s (%s)", n.CIDR, s.Pools[j].Name, s.Pools[j].CIDR)
			}
		}
		p := blocks.Pool{
			Meta: blocks.Meta{Name: fmt.Sprintf("new-pool-%d", i+1)}, CIDR: n.CIDR, BlockSize: n.BlockSize, NodeSelector: n.NodeSelector,
			Uses: []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}, Automatic: true, IPIP: blocks.EncapNever, VXLAN: blocks.EncapNever,
		}
		if like := slices.IndexFunc(s.Pools, func(o blocks.Pool) bool { return o.Family() == p.Family() && o.ServesWorkloads() }); like >= 0 {
			p.IPIP, p.VXLAN, p.DisableBGPExport = s.Pools[like].IPIP, s.Pools[like].VXLAN, s.Pools[like].DisableBGPExport
		}
		s.Pools = append(s.Pools, p)
	}
	return nil
}

// checkBlockSize validates a block size against Calico's limits and the pool's size.
func checkBlockSize(cidr netip.Prefix, bits int) error {
	if err := checkBlockBits(cidr, bits); err != nil {
		return fmt.Errorf("%w for pool %s", err, cidr)
	}
	return checkWithin(cidr, bits)
}

// checkWithin checks that a block fits into its pool.
func checkWithin(cidr netip.Prefix, bits int) error {
	if bits < cidr.Bits() {
		return fmt.Errorf("a block of /%d is larger than pool %s", bits, cidr)
	}
	return nil
}

// checkBlockBits checks that Calico accepts a block size in the CIDR's family (libcalico-go
// validator/v3/validator.go, validateIPPoolSpec).
func checkBlockBits(cidr netip.Prefix, bits int) error {
	least, most := 20, 32
	if cidr.Addr().Is6() {
		least, most = 116, 128
	}
	if bits < least || bits > most {
		return fmt.Errorf("block size /%d: Calico takes /%d to /%d", bits, least, most)
	}
	return nil
}

func reserve(s *blocks.Snapshot, q *Scenario) error {
	for _, r := range q.Reserve {
		if !slices.ContainsFunc(s.Pools, func(p blocks.Pool) bool { return p.CIDR.Overlaps(r) }) {
			return fmt.Errorf("%s is in no pool: reserving it changes nothing", r)
		}
	}
	if len(q.Reserve) > 0 {
		s.Reservations = append(s.Reservations, blocks.Reservation{Meta: blocks.Meta{Name: "what-if"}, CIDRs: q.Reserve})
	}
	return nil
}

// resize replaces a pool by one with the same CIDR and another block size. If the scenario
// does not name the pool, resize fills in its name.
func (w *world) resize(b *BlockSize) error {
	var of []*state.Pool
	for _, p := range w.pools {
		if b.Pool == p.Name || b.Pool == "" && p.ServesWorkloads() && p.Family() == b.Family() {
			of = append(of, p)
		}
	}
	switch {
	case len(of) == 0 && b.Pool != "":
		return fmt.Errorf("there is no pool %q", b.Pool)
	case len(of) == 0:
		return fmt.Errorf("there is no %s pool for workloads", b.Family())
	case len(of) > 1:
		return fmt.Errorf("several %s pools serve workloads: name the one that gets blocks of /%d, as in %s=%d", b.Family(), b.Bits, of[0].Name, b.Bits)
	}
	if err := checkBlockSize(of[0].CIDR, b.Bits); err != nil {
		return err
	}
	if slices.Contains(w.rebuilt, of[0]) {
		return fmt.Errorf("pool %s is given two block sizes, /%d and /%d", of[0].Name, of[0].BlockSize, b.Bits)
	}
	b.Pool = of[0].Name
	w.replace(of[0], b.Bits)
	return nil
}

func (w *world) replace(p *state.Pool, bits int) {
	bare := *p.Pool
	bare.BlockSize = bits
	other := &state.Pool{Pool: &bare, NodeSelection: p.NodeSelection, NamespaceSelection: p.NamespaceSelection}
	w.pools = slices.Clone(w.pools)
	w.pools[slices.Index(w.pools, p)] = other
	w.rebuilt = append(slices.Clip(w.rebuilt), other)
}

// allocator returns an Allocator for the start of the simulation.
func (w *world) allocator() *Allocator {
	return newAllocator(w.State, w.pools, w.config, w.starts, func(cidr netip.Prefix) bool {
		return slices.ContainsFunc(w.rebuilt, func(p *state.Pool) bool { return p.CIDR.Overlaps(cidr) })
	})
}
