package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// numbers collects samples of a State. It leaves out families with missing resources, whose
// numbers would be wrong.
type numbers struct {
	*samples
	state *state.State
	knows map[*Family]bool
}

func (s *numbers) add(f *Family, value float64, labels ...string) {
	known, evaluated := s.knows[f]
	if !evaluated {
		known = s.state.FirstMissing(f.Requires) == nil
		s.knows[f] = known
	}
	if known {
		s.samples.add(f, value, labels...)
	}
}

// addNumbers adds the numbers of a State and its report.
func (s *samples) addNumbers(st *state.State, r *audit.Report, o ExporterOptions) {
	n := &numbers{samples: s, state: st, knows: map[*Family]bool{}}
	n.pools()
	n.nodesWithoutBlock()
	if o.MaxNodes > 0 {
		n.add(nodesJoinable, float64(max(0, o.MaxNodes-len(st.Nodes))))
	}
	if o.NodeMetrics {
		n.nodes()
	}
	for i := range r.WhereaboutsPools {
		if p := &r.WhereaboutsPools[i]; o.NodeMetrics || p.Node == "" {
			n.secondary(p)
		}
	}
	n.add(datastoreIsLocked, number(st.Info.Locked))
}

// addIf adds a sample if known is true: if no undecodable block could change the number.
func (s *numbers) addIf(known bool, f *Family, value float64, labels ...string) {
	if known {
		s.add(f, value, labels...)
	}
}

func (s *numbers) pools() {
	all := len(s.state.Unreadable(blocks.Blocks)) == 0
	borrowed := map[*state.Pool]int{}
	for _, b := range s.state.Borrows {
		borrowed[b.Block.Pool]++
	}
	seen := map[string]bool{}
	for _, p := range s.state.Pools {
		if seen[p.Name] {
			continue // one series per pool name
		}
		seen[p.Name] = true
		family := p.Family().String()
		placed, unplaced := s.state.UnreadInPool(p)
		claimed := unplaced == 0
		taken := claimed && placed == 0
		s.add(poolInfo, 1, p.Name, family, p.CIDR.String(), strconv.Itoa(p.BlockSize), strconv.FormatBool(p.ServesWorkloads() && p.Automatic))
		s.add(poolCapacity, p.Addrs.Capacity.Float(), p.Name, family)
		s.addIf(taken, poolInUse, p.Addrs.InUse.Float(), p.Name, family)
		s.add(poolReserved, p.Addrs.Reserved.Float(), p.Name, family)
		s.addIf(taken, poolAvailable, p.Addrs.Available.Float(), p.Name, family)
		s.addIf(taken, poolBorrowed, float64(borrowed[p]), p.Name, family)
		for i, n := range []blocks.Count{p.Slots.Claimed, p.Slots.Free, p.Slots.Reserved} {
			s.addIf(claimed, poolBlocks, n.Float(), p.Name, family, slotStates[i])
		}
		s.addIf(taken || claimed && !blocks.CalicoAtLeast(s.state.Cluster.CalicoVersion, 3, 32), poolAllocatable, p.Slots.Allocatable.Float(), p.Name, family)
		s.addIf(all, poolReleasable, p.Releasable.Float(), p.Name, family)
		s.addIf(all, poolNeeded, p.Needed.Float(), p.Name, family)
	}
}

// secondary adds the numbers of a Whereabouts pool.
func (s *numbers) secondary(p *audit.WhereaboutsPoolReport) {
	labels := []string{p.Name, p.Network, p.Family().String()}
	s.add(secondaryInUse, p.InUse.Float(), labels...)
	if p.Capacity != nil {
		s.add(secondaryCapacity, p.Capacity.Float(), labels...)
		s.add(secondaryAvailable, p.Available.Float(), labels...)
	}
}

// nodesWithoutBlock counts the schedulable nodes without a block, by family.
func (s *numbers) nodesWithoutBlock() {
	without := map[blocks.Family]int{}
	for _, h := range s.state.NodeStates {
		for _, n := range h.BlockStatus {
			if h.Schedulable && n.NoBlock() && len(n.Elsewhere) == 0 {
				without[n.Family]++
			}
		}
	}
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		s.addIf(without[f] == 0 || len(s.state.Unreadable(blocks.Blocks)) == 0, nodesWithout, float64(without[f]), f.String())
	}
}

type place struct{ node, pool string }

// share counts a node's blocks and addresses in a pool.
type share struct {
	blocks, empty, borrowed, lent int
	own, others, unowned          int // addresses in use, by owner of the block
}

func (s *numbers) nodes() {
	shares := s.shares()
	order := slices.SortedFunc(maps.Keys(shares), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.pool, b.pool))
	})
	all := len(s.state.Unreadable(blocks.Blocks)) == 0
	for _, at := range order {
		n := shares[at]
		node := at.node
		if node == noNode {
			node = ""
		}
		own := all || s.state.UnreadOfNode(node) == 0
		s.addIf(own, nodeBlocks, float64(n.blocks), at.node, at.pool)
		s.addIf(own, nodeEmpty, float64(n.empty), at.node, at.pool)
		s.addIf(all, nodeBorrowed, float64(n.borrowed), at.node, at.pool)
		s.addIf(own, nodeLent, float64(n.lent), at.node, at.pool)
		s.addIf(own, nodeInUse, float64(n.own), at.node, at.pool, "self")
		if n.others > 0 {
			s.addIf(all, nodeInUse, float64(n.others), at.node, at.pool, "other")
		}
		if n.unowned > 0 {
			s.addIf(all, nodeInUse, float64(n.unowned), at.node, at.pool, "none")
		}
	}
}

// shares counts the blocks and addresses of each node in each pool. An existing node has a
// share, possibly empty, in each pool that serves its pods.
func (s *numbers) shares() map[place]*share {
	out := map[place]*share{}
	at := func(node, pool string) *share {
		p := place{cmp.Or(node, noNode), cmp.Or(pool, noPool)}
		if out[p] == nil {
			out[p] = &share{}
		}
		return out[p]
	}
	for _, h := range s.state.NodeStates {
		if h.Node == nil {
			continue
		}
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			for _, p := range s.state.WorkloadPools(h.Node, f) {
				at(h.Name, p.Name)
			}
		}
	}
	for _, b := range s.state.IPBlocks {
		owner, pool := b.Owner.Node(), poolName(b.Pool)
		own := at(owner, pool)
		own.blocks++
		if b.Used == 0 {
			own.empty++
			continue
		}
		for i := range b.Ordinals {
			if b.Ordinals[i] == blocks.Free {
				continue
			}
			node := ""
			if a := b.At(i); a != nil {
				node = a.Node
			}
			switch {
			case owner == "":
				at(node, pool).unowned++
			case node == owner:
				own.own++
			default:
				at(node, pool).others++
			}
		}
	}
	for _, b := range s.state.Borrows {
		pool := poolName(b.Block.Pool)
		at(b.User, pool).borrowed++
		at(b.Owner, pool).lent++
	}
	return out
}

func poolName(p *state.Pool) string {
	if p == nil {
		return ""
	}
	return p.Name
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
