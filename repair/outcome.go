package repair

import (
	"cmp"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// DeletedError is the error of a step whose object is not in the state that it was
// derived from.
func DeletedError(s *Step) error { return fmt.Errorf("%s: %w: it is gone", s.ID, ErrChanged) }

// Replaced is an error if the object that stands where a step's target stood may still
// be that target. It is not if it is another one that was made later.
func Replaced(s *Step, what string, m blocks.Meta) error {
	if m.UID() == s.Guard(GuardUID) {
		return fmt.Errorf("%s %s is still there", what, m.Name)
	}
	made, err := time.Parse(time.RFC3339, s.Guard(GuardCreated))
	if err != nil || m.Created.Std().Before(made) {
		return fmt.Errorf("%s %s is there, and is not the one that the step is about", what, m.Name)
	}
	return nil
}

// ClaimedAgain reports whether an affinity that a step has made pendingDeletion is its
// node's again: a claim makes it pending first (getPendingAffinity of
// libcalico-go/lib/ipam/ipam_block_reader_writer.go), before there is a block.
func ClaimedAgain(a *blocks.Affinity) bool { return a.State == blocks.Pending && !a.SoftDeleted }

// OldFrom says when a state that has held since a time will have held for the grace, to
// be added to why it is too young; "" if the time is not known.
func OldFrom(st *state.State, since blocks.Time) string {
	if since.IsZero() {
		return ""
	}
	return PlanAfter(st, st.Due(since))
}

// PlanAfter says from when on something is due, to be added to why it is not yet; "" if it is
// not a matter of time.
func PlanAfter(st *state.State, due blocks.Time) string {
	if due.IsZero() || !due.Std().After(st.Cluster.TakenAt) {
		return ""
	}
	return fmt.Sprintf("; plan again after %s", phrase.Time(due.Std().Add(time.Second-1).Truncate(time.Second)))
}

// HostOf returns the node that the value of [GuardOwner] names; "" if none.
func HostOf(owner string) string { return blocks.ParseOwner(owner).Node() }

// OwnerText names a block's owner in a sentence.
func OwnerText(o blocks.Owner) string {
	if o == (blocks.Owner{}) {
		return "no one"
	}
	return cmp.Or(o.Node(), o.String())
}

// LeftBehind is the error of a step that is done but for an object, of which the text says
// how it stands.
func LeftBehind(r blocks.Resource, name, format string, args ...any) error {
	return &LeftBehindError{Resource: r, Name: name, State: fmt.Sprintf(format, args...)}
}
