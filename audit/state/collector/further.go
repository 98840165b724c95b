package collector

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// FurtherUser returns the live pod that an allocation names, if the pod has the address on a
// secondary interface; else nil. The pod's network status shows the address, or the allocation has
// the handle of the pod's sandbox.
func FurtherUser(st *state.State, r state.AllocationRef) *blocks.Workload {
	attr := r.Attributes()
	if r.Kind() != state.UsePod || r.Block.SoftDeleted {
		return nil
	}
	w, a := st.LiveUserOf(r), r.Addr()
	if w == nil {
		w = st.Pod(attr.Namespace, attr.Pod)
	}
	if w == nil || w.Name != attr.Pod || w.Namespace != attr.Namespace || !w.Live() || state.MayStillUse(w) || slices.Contains(w.StatusIPs, a) {
		return nil
	}
	attached := slices.Contains(w.Extras().NetworkIPs, a)
	if !attached && (slices.Contains(w.AnnotationIPs, a) || !blocks.SandboxHandle(attr.Handle, w.ContainerID)) {
		return nil
	}
	return w
}
