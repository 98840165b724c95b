// Package misrecorded finds addresses that a live pod uses while a block records them for a pod
// that does not have them.
package misrecorded

import (
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

// Address is an address that a live pod uses and that is recorded for another pod.
type Address struct {
	state.AllocationRef
	// User is the live pod that uses the address.
	User *blocks.Workload
	// Named describes the pod that the allocation names.
	Named string
}

type all []Address

// Of returns the misrecorded addresses of a state, in order of their blocks. An address is
// misrecorded if the pod that its allocation names does not exist, or if Calico's collector regards
// the allocation as a leak although a live pod names the address in its status or in Calico's
// annotations. Addresses of virtual machines and tunnels are not evaluated.
func Of(st *state.State) []Address {
	return *state.Derived(st, func(st *state.State) *all {
		out := all{}
		st.EachAllocation(func(r state.AllocationRef, _ string) {
			if w, named := user(st, r); w != nil {
				out = append(out, Address{r, w, named})
			}
		})
		return &out
	})
}

// Has reports whether an allocation is misrecorded.
func Has(st *state.State, r state.AllocationRef) bool {
	w, _ := user(st, r)
	return w != nil
}

// user returns the live pod that uses a misrecorded address, and describes the pod that the
// allocation names; nil if the address is not misrecorded.
func user(st *state.State, r state.AllocationRef) (*blocks.Workload, string) {
	attr := r.Attributes()
	if r.Kind() != state.UsePod || r.Block.SoftDeleted || len(r.Block.Faults) > 0 || len(st.TunnelsAt(r.Addr())) > 0 {
		return nil, ""
	}
	w := st.LiveUserOf(r)
	if w == nil || w.Namespace == attr.Namespace && w.Name == attr.Pod {
		return nil, ""
	}
	if alt := attr.Extras().Alternate; alt != nil && alt.Namespace == w.Namespace && alt.Pod == w.Name {
		return nil, ""
	}
	full := attr.Namespace + "/" + attr.Pod
	named := st.Pod(attr.Namespace, attr.Pod)
	_, unread := st.UnreadPod()
	switch {
	case named == nil && unread:
		return nil, ""
	case named == nil:
		return w, "pod " + full + ", which does not exist"
	case state.MayStillUse(named) || !collector.OfAddress(st, r).Leaked:
		return nil, ""
	case named.Finished():
		return w, "pod " + full + ", which has finished"
	}
	return w, "pod " + full + ", which has another address"
}
