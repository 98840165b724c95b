package repair

import (
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Refs collects objects to read again, each once.
type Refs struct {
	State *state.State
	All   []blocks.Ref
	seen  map[blocks.Ref]bool
}

// NewRefs returns Refs with the objects that every step needs: ClusterInformation, which
// has the cluster's identity and the datastore lock, and the IPAM settings.
func NewRefs(st *state.State) *Refs {
	r := &Refs{State: st, seen: map[blocks.Ref]bool{}}
	r.One(blocks.ClusterInfos, "default")
	r.One(blocks.IPAMConfigs, "default")
	return r
}

// Add adds an object unless it was added before.
func (r *Refs) Add(ref blocks.Ref) {
	if !r.seen[ref] {
		r.seen[ref] = true
		r.All = append(r.All, ref)
	}
}

// One adds a cluster-scoped object. It ignores an empty name.
func (r *Refs) One(res blocks.Resource, name string) {
	if name != "" {
		r.Add(blocks.Ref{Resource: res, Name: name})
	}
}

// Block adds the block of a CIDR, by its canonical name and by the names of the objects
// that were read.
func (r *Refs) Block(p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	r.One(blocks.Blocks, blocks.BlockName(p))
	for _, b := range r.State.IPBlocks {
		if b.CIDR == p {
			r.One(blocks.Blocks, b.Name)
		}
	}
}

// Claim adds the objects that decide who owns a CIDR: its block, all affinities, and the
// host. It also adds the host's affinity by its canonical name, under which a client
// would create it now.
func (r *Refs) Claim(p netip.Prefix, host string) {
	r.Block(p)
	r.Node(host)
	for _, a := range r.State.AffinitiesOf(p) {
		r.One(blocks.Affinities, a.Name)
	}
	if host != "" && p.IsValid() {
		r.One(blocks.Affinities, blocks.AffinityName(host, p))
	}
}

// Supply adds all pools and reservations, because new ones count, too: they decide which blocks a
// node can claim, and which of their addresses pods can get. A cluster has few of them.
func (r *Refs) Supply() {
	r.Add(blocks.Ref{Resource: blocks.Pools})
	r.Add(blocks.Ref{Resource: blocks.Reservations})
}

// Host adds the objects that decide which blocks a node has and needs: the node, its
// blocks and affinities, its pods, and the supply.
func (r *Refs) Host(name string) {
	if name == "" {
		return
	}
	r.Node(name)
	if h := r.State.NodeState(name); h != nil {
		for _, b := range h.Blocks {
			r.One(blocks.Blocks, b.Name)
		}
		for _, a := range h.Affinities {
			r.One(blocks.Affinities, a.Name)
		}
		for _, w := range h.Workloads {
			r.One(blocks.Namespaces, w.Namespace)
		}
	}
	r.Supply()
}

// Node adds a node and all pods bound to it.
func (r *Refs) Node(name string) {
	if name != "" {
		r.One(blocks.Nodes, name)
		r.Add(blocks.Ref{Resource: blocks.Pods, Node: name})
	}
}

// Pod adds a pod.
func (r *Refs) Pod(namespace, name string) {
	if namespace != "" && name != "" {
		r.Add(blocks.Ref{Resource: blocks.Pods, Namespace: namespace, Name: name})
	}
}

// Namespaced adds an object by "NAMESPACE/NAME". It ignores names in another format.
func (r *Refs) Namespaced(res blocks.Resource, name string) {
	if namespace, name, ok := strings.Cut(name, "/"); ok && namespace != "" && name != "" {
		r.Add(blocks.Ref{Resource: res, Namespace: namespace, Name: name})
	}
}

// Handle adds a handle, the blocks that it counts, the blocks that refer to it, and the
// pods of those allocations.
func (r *Refs) Handle(id string) {
	r.One(blocks.Handles, strings.ToLower(id)) // its name in Kubernetes
	r.One(blocks.Handles, id)                  // its name in etcd
	if h := r.State.Handle(id); h != nil {
		r.One(blocks.Handles, h.Name)
		for _, c := range h.Blocks {
			r.Block(c.CIDR)
		}
	}
	for _, ref := range r.State.HandleRefs(id) {
		r.One(blocks.Blocks, ref.Block.Name)
		r.Owner(ref)
	}
}

// Owner adds the owners of an allocation: its pods, including the one that takes the
// address over at the end of a migration, the virtual machine, and the node with its
// pods. A tunnel address has an owner as long as any other part of its node has one.
func (r *Refs) Owner(ref state.AllocationRef) {
	attr := ref.Attributes()
	if attr == nil {
		return
	}
	r.Pod(attr.Namespace, attr.Pod)
	r.Node(attr.Node)
	if alt := attr.Extras().Alternate; alt != nil {
		r.Pod(alt.Namespace, alt.Pod)
		r.Node(alt.Node)
	}
	if namespace, name, _ := attr.VMOf(); name != "" {
		r.Add(blocks.Ref{Resource: blocks.VMs, Namespace: namespace, Name: name})
		r.Add(blocks.Ref{Resource: blocks.VMInstances, Namespace: namespace, Name: name})
	}
	kind, node := attr.TunnelOf()
	if kind == "" {
		return
	}
	r.Node(node)
	for _, b := range r.State.IPBlocks {
		for i := range b.Attributes {
			if b.Attributes[i].Node == node {
				r.One(blocks.Blocks, b.Name)
				break
			}
		}
	}
}

// User adds the live pod that uses an address, and its node.
func (r *Refs) User(ref state.AllocationRef) {
	if w := r.State.LiveUser(ref.Addr(), ref.Attributes()); w != nil {
		r.Pod(w.Namespace, w.Name)
		r.One(blocks.Nodes, w.Node)
	}
}

// PrefixOf parses the CIDR of a target. It returns the zero value if the target has none.
func PrefixOf(t state.Subject) netip.Prefix {
	p, _ := netip.ParsePrefix(t.CIDR)
	return p
}
