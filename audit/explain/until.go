package explain

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// ends explains, for each reason to keep an empty block, when it no longer applies, if the text
// is the same for every block.
var ends = map[state.RetainReason]string{
	state.RetainCorrupt:  "releasable once its contradictions are repaired",
	state.RetainLocked:   "evaluated again once the datastore is unlocked: calicoctl datastore migrate unlock",
	state.RetainInUse:    "releasable once nothing uses an address of it any more",
	state.RetainHostView: "releasable once no node uses an address of it any more",
	state.RetainConflict: "releasable once the objects of its CIDR no longer contradict one another",
}

// until explains what ends the verdict on an empty block, in order of time; empty if unknown.
func until(st *state.State, b *state.Block) (out []string) {
	r := &b.Releasability
	if r.OK {
		return []string{"releasable until an address of it is assigned or anything else is written to it; from then on it must stay untouched for " +
			phrase.Duration(st.Grace) + " again"}
	}
	if r.Code == state.RetainYoung || r.Code == state.RetainUnknownAge {
		since, known := b.LastTouch()
		due := phrase.Time(st.Due(since))
		switch {
		case !known:
			out = append(out, "evaluated once its last write is known: read the cluster itself, or files made with kubectl get --show-managed-fields")
		case r.After == nil:
			out = append(out, fmt.Sprintf("releasable at %s, when nothing has been written to it for %s", due, phrase.Duration(st.Grace)))
		default:
			out = append(out, fmt.Sprintf("old enough at %s, but must still stay then: %s", due, r.After.Reason))
		}
		if r = r.After; r == nil {
			return out
		}
	}
	switch end := ends[r.Code]; {
	case end != "":
		out = append(out, end)
	case b.Owner.Kind == blocks.VirtualOwner:
		out = append(out, "never: services may take addresses of it at any time")
	case r.Code == state.RetainMarked && b.SoftDeleted:
		out = append(out, "gone once its deletion is finished")
	case r.Code == state.RetainMarked:
		out = append(out, "releasable once the deletion of its affinity is finished")
	case r.Code == state.RetainLast:
		out = append(out, fmt.Sprintf("releasable once %s holds another usable block in the same pools, or is deleted", b.Owner.Node()))
	case r.Code == state.RetainNotRead && !st.ReleasableKnown():
		out = append(out, fmt.Sprintf("evaluated once this can be read: %s", st.Lacking(state.ReleaseReads).Resource))
	}
	return out
}
