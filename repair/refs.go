package repair

import (
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Refs collects the objects that are to be read again, each once.
type Refs struct {
	State *state.State
	All   []blocks.Ref
	seen  map[blocks.Ref]bool
}

// NewRefs begins with what every step needs: whether the datastore is locked, which
// cluster it is, and the settings.
func NewRefs(st *state.State) *Refs {
	r := &Refs{State: st, seen: map[blocks.Ref]bool{}}
	r.One(blocks.ClusterInfos, "default")
	r.One(blocks.IPAMConfigs, "default")
	return r
}

// Add adds what is to be read again, once.
func (r *Refs) Add(ref blocks.Ref) {
	if !r.seen[ref] {
		r.seen[ref] = true
		r.All = append(r.All, ref)
	}
}

// One adds an object of a kind without namespaces; none if the name is empty.
func (r *Refs) One(res blocks.Resource, name string) {
	if name != "" {
		r.Add(blocks.Ref{Resource: res, Name: name})
	}
}

// Block adds the block of a CIDR, under its canonical name and under the names of
// the objects that were seen.
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

// Claim adds what says who has a CIDR: its block, all affinities, and that of a host
// under its canonical name, where it would be if somebody made it now; and the host.
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

// Host adds a node with all that says which blocks it has and needs: its object,
// its blocks and affinities, its pods and the pools.
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
	for _, p := range r.State.Pools {
		r.One(blocks.Pools, p.Name)
	}
}

// Node adds a node's object and all pods bound to it.
func (r *Refs) Node(name string) {
	if name != "" {
		r.One(blocks.Nodes, name)
		r.Add(blocks.Ref{Resource: blocks.Pods, Node: name})
	}
}

// Pod adds one pod.
func (r *Refs) Pod(namespace, name string) {
	if namespace != "" && name != "" {
		r.Add(blocks.Ref{Resource: blocks.Pods, Namespace: namespace, Name: name})
	}
}

// Namespaced adds an object by its namespace and name, joined by a slash; none if it is
// not such a name.
func (r *Refs) Namespaced(res blocks.Resource, name string) {
	if namespace, name, ok := strings.Cut(name, "/"); ok && namespace != "" && name != "" {
		r.Add(blocks.Ref{Resource: res, Namespace: namespace, Name: name})
	}
}

// Handle adds a handle, the blocks that it counts in and those that refer to it,
// and the pods that these name.
func (r *Refs) Handle(id string) {
	r.One(blocks.Handles, strings.ToLower(id))
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

// Owner adds what an allocation names as its owner: pods, also the one that takes the
// address over when a migration ends, the virtual machine, and the node with its pods.
// A tunnel is owned as long as anything else of its node is.
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

// User adds the live pod that is seen to use an address, with its node.
func (r *Refs) User(ref state.AllocationRef) {
	if w := r.State.LiveUser(ref.Addr(), ref.Attributes()); w != nil {
		r.Pod(w.Namespace, w.Name)
		r.One(blocks.Nodes, w.Node)
	}
}

// PrefixOf reads the CIDR of a target; the zero value if it has none.
func PrefixOf(t state.Subject) netip.Prefix {
	p, _ := netip.ParsePrefix(t.CIDR)
	return p
}
