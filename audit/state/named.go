package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// named are the pods that ask for addresses by name (cni.projectcalico.org/ipAddrs), now or when
// their controller makes them again.
type named struct{ pods []*blocks.Workload }

func findNamed(st *State) *named {
	n := &named{}
	for _, w := range st.Workloads {
		if len(w.Extras().StaticIPs) > 0 && !w.HostNetwork && (w.MayBeLive() || w.Controller != nil) {
			n.pods = append(n.pods, w)
		}
	}
	return n
}

// askedByName names a pod of a node that asks for an address of a node's block by name. With strict
// affinity on, it gets that address only from a block of its own node (libcalico-go ipam, AssignIP).
func (st *State) askedByName(p netip.Prefix, node string) string {
	if h := st.nodeStates[node]; h == nil || h.Node == nil || !st.IPAM.StrictAffinity {
		return ""
	}
	for _, w := range Derived(st, findNamed).pods {
		i := slices.IndexFunc(w.Extras().StaticIPs, p.Contains)
		if i >= 0 && (w.Node == node || w.Node == "") {
			return fmt.Sprintf("pod %s asks for %s of it by name, and would not get that address once another node claims the block", w.FullName(), w.Extras().StaticIPs[i])
		}
	}
	return ""
}

// NamedElsewhere returns the pods that ask by name for an address of a block that their node does not
// own: with strict affinity on, they get no address when they start.
func (st *State) NamedElsewhere() (out []*blocks.Workload) {
	for _, w := range Derived(st, findNamed).pods {
		if w.Node != "" && slices.ContainsFunc(w.Extras().StaticIPs, func(a netip.Addr) bool {
			b := st.CoveringBlock(a)
			return b != nil && !b.SoftDeleted && b.Owner.Node() != w.Node
		}) {
			out = append(out, w)
		}
	}
	return out
}
