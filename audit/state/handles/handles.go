// Package handles decides whether a handle may be created, corrected or deleted. Remedies
// and plans share its verdicts.
package handles

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// doubts indexes reasons not to change handles, by handle ID in lower case.
type doubts struct {
	// corrupt holds the handles that corrupt blocks refer to, with such a block.
	corrupt map[string]*state.Block
	// sandboxes holds the pods by their sandbox.
	sandboxes map[string]*blocks.Workload
	// twice holds the IDs that several handle objects share.
	twice map[string]bool
}

func doubtsOf(st *state.State) *doubts {
	return state.Derived(st, func(st *state.State) *doubts {
		d := &doubts{map[string]*state.Block{}, map[string]*blocks.Workload{}, map[string]bool{}}
		for _, b := range st.IPBlocks {
			if len(b.Faults) == 0 {
				continue
			}
			for i := range b.Attributes {
				d.corrupt[strings.ToLower(b.Attributes[i].Handle)] = b
			}
		}
		for _, w := range st.Workloads {
			if w.ContainerID != "" && w.MayBeLive() {
				d.sandboxes[strings.ToLower(w.ContainerID)] = w
			}
		}
		for _, h := range st.Handles {
			id := strings.ToLower(h.ID)
			_, seen := d.twice[id]
			d.twice[id] = seen
		}
		return d
	})
}

// SandboxPod returns the unfinished pod of the sandbox in a handle's ID, by Calico's
// annotation; nil if there is none. The CNI plugin builds the ID from the network's name, a
// dot and the container's ID (cni-plugin internal/pkg/utils, GetHandleID).
func SandboxPod(st *state.State, handle string) *blocks.Workload {
	return doubtsOf(st).sandboxes[strings.ToLower(handle[strings.LastIndex(handle, ".")+1:])]
}

// bar explains why a handle must not be changed, regardless of its references. A
// superfluous handle does no harm, so any doubt keeps it.
func bar(st *state.State, h *blocks.Handle) state.Bar {
	id, d := strings.ToLower(h.ID), doubtsOf(st)
	switch {
	case id == strings.ToLower(blocks.WindowsReservedHandle):
		return state.Because(state.RetainSpecial, "it represents the addresses that Windows nodes reserve")
	case d.twice[id]:
		return state.Because(state.RetainConflict, "several handle objects have this ID")
	case d.corrupt[id] != nil:
		return state.Because(state.RetainCorrupt, "block %s names it and contradicts itself: %s", d.corrupt[id].CIDR, d.corrupt[id].Faults[0])
	case len(st.Unreadable(blocks.Blocks)) > 0: // includes blocks that the handle does not count
		return state.Because(state.RetainNotRead, "a block that cannot be read may refer to it")
	case slices.ContainsFunc(st.Unreadable(blocks.Handles), func(g blocks.Gap) bool { return g.Name == h.Name }):
		return state.Because(state.RetainNotRead, "a part of it cannot be read")
	case st.HandleMayBeUsed(h):
		return state.Because(state.RetainCorrupt, "a block that it counts in contradicts itself, and may refer to it")
	}
	return state.Bar{}
}

// FinishBar explains why a soft-deleted handle must not be deleted.
func FinishBar(st *state.State, h *blocks.Handle) state.Bar {
	doubt, young := bar(st, h), st.MarkBar(h.Meta)
	switch n, w := len(st.HandleRefs(h.ID)), SandboxPod(st, h.ID); {
	case doubt.Code != "":
		return doubt
	case young.Code != "":
		return young
	case n > 0:
		return state.Because(state.RetainInUse, "blocks record %s under it: without it they could not be released", phrase.Plural(n, "address"))
	case w != nil:
		return state.Because(state.RetainInUse, "pod %s names its sandbox, and may be about to use it", w.FullName())
	}
	return state.Bar{}
}

// ReconcileBar explains why a handle's counts must not be corrected, or why a handle without
// references must not be deleted. Its pod is starting or ending, or it was written recently: a
// handle is written right before its block.
func ReconcileBar(st *state.State, h *blocks.Handle) state.Bar {
	if b := bar(st, h); b.Code != "" {
		return b
	}
	refs := st.HandleRefs(h.ID)
	if !st.OldEnough(h.Meta) {
		order := ""
		if len(refs) == 0 {
			order = ": a handle is written before the address that it counts"
		}
		at := h.Written.Later(h.Created)
		return state.Because(state.RetainYoung, "it was written at %s, within the grace period%s", at, order).Until(st.Due(at))
	}
	w := SandboxPod(st, h.ID)
	if w != nil && len(refs) == 0 {
		return state.Because(state.RetainInUse, "pod %s names its sandbox, and may be about to use it", w.FullName())
	}
	if moving(w) {
		return state.Because(state.RetainInUse, "pod %s is starting or ending", w.FullName())
	}
	for _, r := range refs {
		if at := state.AssignedAt(r); !st.PastGrace(at) {
			return state.Because(state.RetainYoung, "%s was assigned under it at %s, within the grace period", r.Addr(), at).Until(st.Due(at))
		}
		attr := r.Attributes()
		if w := st.Pod(attr.Namespace, attr.Pod); moving(w) {
			return state.Because(state.RetainInUse, "pod %s is starting or ending", w.FullName())
		}
	}
	return state.Bar{}
}

// CreateBar explains why a missing handle that blocks refer to must not be created.
func CreateBar(st *state.State, h *blocks.Handle) state.Bar {
	for _, r := range st.HandleRefs(h.ID) {
		if r.Block.SoftDeleted {
			return state.Because(state.RetainMarked, "block %s, which refers to it, is marked deleted", r.Block.CIDR)
		}
		if special := state.OwnerBar(r.Block.Owner); r.Block.Owner != (blocks.Owner{}) && special.Code != "" {
			return special
		}
	}
	for _, g := range st.Unreadable(blocks.Handles) {
		if g.Name == h.Name || len(st.HandleRefs(g.Name)) == 0 { // one that no block refers to by its name
			return state.Because(state.RetainNotRead, "handle %s cannot be read, and may be this handle", g.Name)
		}
	}
	return ReconcileBar(st, h)
}

// moving reports whether a pod's network is possibly being set up or removed.
func moving(w *blocks.Workload) bool {
	return w != nil && (w.Phase == "Pending" || !w.Deleting.IsZero() || w.Extras().Partial != "")
}
