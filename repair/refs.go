package repair

import (
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// refs collects the objects that are to be read again, each once.
type refs struct {
	st   *state.State
	out  []blocks.Ref
	seen map[blocks.Ref]bool
}

// newRefs begins with what every step needs: whether the datastore is locked, which
// cluster it is, and the settings.
func newRefs(st *state.State) *refs {
	r := &refs{st: st, seen: map[blocks.Ref]bool{}}
	r.one(blocks.ClusterInfos, "default")
	r.one(blocks.IPAMConfigs, "default")
	return r
}

func (r *refs) add(ref blocks.Ref) {
	if !r.seen[ref] {
		r.seen[ref] = true
		r.out = append(r.out, ref)
	}
}

func (r *refs) one(res blocks.Resource, name string) {
	if name != "" {
		r.add(blocks.Ref{Resource: res, Name: name})
	}
}

// block adds the block of a CIDR, under its canonical name and under the names of
// the objects that were seen.
func (r *refs) block(p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	r.one(blocks.Blocks, blocks.BlockName(p))
	for _, b := range r.st.IPBlocks {
		if b.CIDR == p {
			r.one(blocks.Blocks, b.Name)
		}
	}
}

// claim adds what says who has a CIDR: its block, all affinities, and that of a host
// under its canonical name, where it would be if somebody made it now; and the host.
func (r *refs) claim(p netip.Prefix, host string) {
	r.block(p)
	r.node(host)
	for _, a := range r.st.AffinitiesOf(p) {
		r.one(blocks.Affinities, a.Name)
	}
	if host != "" && p.IsValid() {
		r.one(blocks.Affinities, blocks.AffinityName(host, p))
	}
}

// host adds a node with all that says which blocks it has and needs: its object,
// its blocks and affinities, its pods and the pools.
func (r *refs) host(name string) {
	if name == "" {
		return
	}
	r.node(name)
	if h := r.st.NodeState(name); h != nil {
		for _, b := range h.Blocks {
			r.one(blocks.Blocks, b.Name)
		}
		for _, a := range h.Affinities {
			r.one(blocks.Affinities, a.Name)
		}
		for _, w := range h.Workloads {
			r.one(blocks.Namespaces, w.Namespace)
		}
	}
	for _, p := range r.st.Pools {
		r.one(blocks.Pools, p.Name)
	}
}

// node adds a node's object and all pods bound to it.
func (r *refs) node(name string) {
	if name != "" {
		r.one(blocks.Nodes, name)
		r.add(blocks.Ref{Resource: blocks.Pods, Node: name})
	}
}

// pod adds one pod.
func (r *refs) pod(namespace, name string) {
	if namespace != "" && name != "" {
		r.add(blocks.Ref{Resource: blocks.Pods, Namespace: namespace, Name: name})
	}
}

// handle adds a handle, the blocks that it counts in and those that refer to it,
// and the pods that these name.
func (r *refs) handle(id string) {
	r.one(blocks.Handles, strings.ToLower(id))
	if h := r.st.Handle(id); h != nil {
		r.one(blocks.Handles, h.Name)
		for _, c := range h.Blocks {
			r.block(c.CIDR)
		}
	}
	for _, ref := range r.st.HandleRefs(id) {
		r.one(blocks.Blocks, ref.Block.Name)
		r.owner(ref)
	}
}

// owner adds what an allocation names as its owner: pods, also the one that takes the
// address over when a migration ends, the virtual machine, and the node with its pods.
// A tunnel is owned as long as anything else of its node is.
func (r *refs) owner(ref state.AllocationRef) {
	attr := ref.Attributes()
	if attr == nil {
		return
	}
	r.pod(attr.Namespace, attr.Pod)
	r.node(attr.Node)
	if alt := attr.Alternate; alt != nil {
		r.pod(alt.Namespace, alt.Pod)
		r.node(alt.Node)
	}
	if namespace, name, _ := attr.VMOf(); name != "" {
		r.add(blocks.Ref{Resource: blocks.VMs, Namespace: namespace, Name: name})
		r.add(blocks.Ref{Resource: blocks.VMInstances, Namespace: namespace, Name: name})
	}
	kind, node := attr.TunnelOf()
	if kind == "" {
		return
	}
	r.node(node)
	for _, b := range r.st.IPBlocks {
		for i := range b.Attributes {
			if b.Attributes[i].Node == node {
				r.one(blocks.Blocks, b.Name)
				break
			}
		}
	}
}

// user adds the live pod that is seen to use an address, with its node.
func (r *refs) user(ref state.AllocationRef) {
	if w := r.st.LiveUser(ref.Addr(), ref.Attributes()); w != nil {
		r.pod(w.Namespace, w.Name)
		r.one(blocks.Nodes, w.Node)
	}
}

// prefixOf reads the CIDR of a target; the zero value if it has none.
func prefixOf(t state.Subject) netip.Prefix {
	p, _ := netip.ParsePrefix(t.CIDR)
	return p
}
