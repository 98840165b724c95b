package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// named are the pods that ask for addresses by name (cni.projectcalico.org/ipAddrs), now or when
// their controller makes them again.
type named []*blocks.Workload

func findNamed(st *State) *named {
	var out named
	for _, w := range st.Workloads {
		if len(w.Extras().StaticIPs) > 0 && !w.HostNetwork && (w.MayBeLive() || w.Controller != nil) {
			out = append(out, w)
		}
	}
	return &out
}

// Named returns the pods that ask for addresses by name.
func (st *State) Named() []*blocks.Workload { return *Derived(st, findNamed) }

// askedByName names a pod of a node that asks for an address of a node's block by name. With strict
// affinity on, it gets that address only from a block of its own node (libcalico-go ipam, AssignIP).
func (st *State) askedByName(p netip.Prefix, node string) string {
	if h := st.nodeStates[node]; h == nil || h.Node == nil || !st.IPAM.StrictAffinity {
		return ""
	}
	for _, w := range st.Named() {
		i := slices.IndexFunc(w.Extras().StaticIPs, p.Contains)
		if i >= 0 && (w.Node == node || w.Node == "") {
			return fmt.Sprintf("pod %s asks for %s of it by name, and would not get that address once another node claims the block", w.FullName(), w.Extras().StaticIPs[i])
		}
	}
	return ""
}
