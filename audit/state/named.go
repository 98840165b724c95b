package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

type named []*blocks.Workload

// Named returns the pods that ask for addresses by name (ipAddrs), or whose replacements will.
func (st *State) Named() []*blocks.Workload {
	return *Derived(st, func(st *State) *named {
		asks := named(slices.DeleteFunc(slices.Clone(st.Workloads), func(w *blocks.Workload) bool {
			return len(w.Extras().StaticIPs) == 0 || w.HostNetwork || !w.MayBeLive() && w.Controller == nil
		}))
		return &asks
	})
}

// askedByName names a pod of a node that asks for an address of a node's block by name. With strict
// affinity on, it gets that address only from a block of its own node (libcalico-go ipam, AssignIP).
func (st *State) askedByName(p netip.Prefix, node string) string {
	if h := st.nodeStates[node]; h == nil || h.Node == nil || !st.IPAM.StrictAffinity {
		return ""
	}
	for _, w := range st.Named() {
		if i := slices.IndexFunc(w.Extras().StaticIPs, p.Contains); i >= 0 && (w.Node == node || w.Node == "") {
			return fmt.Sprintf("pod %s asks for %s of it by name, and would not get that address once another node claims the block", w.FullName(), w.Extras().StaticIPs[i])
		}
	}
	return ""
}
