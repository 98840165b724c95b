package repair

import (
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// DeletedError returns the error of a step whose target is missing in the state from
// which the step was derived.
func DeletedError(s *Step) error { return fmt.Errorf("%s: %w: it is gone", s.ID, ErrChanged) }

// Replaced returns an error if the object at the place of a step's target may still be
// that target. It returns nil for a different object that was created later.
func Replaced(s *Step, what string, m blocks.Meta) error {
	if m.UID() == s.Guard(GuardUID) {
		return fmt.Errorf("%s %s is still there", what, m.Name)
	}
	made, err := time.Parse(time.RFC3339, s.Guard(GuardCreated))
	if err != nil || m.Created.Std().Before(made) {
		return fmt.Errorf("%s %s exists, but is not the object of the step", what, m.Name)
	}
	return nil
}

// ClaimedAgain reports whether the node has claimed an affinity again after a step had set it to
// pendingDeletion. A claim sets the state to pending before it creates a block (getPendingAffinity
// of libcalico-go/lib/ipam/ipam_block_reader_writer.go).
func ClaimedAgain(a *blocks.Affinity) bool { return a.State == blocks.Pending && !a.SoftDeleted }

// OldFrom returns, as text to append to a reason, the time at which a state that began at the given
// time will have lasted for the grace period. It returns "" if the time is unknown.
func OldFrom(st *state.State, since blocks.Time) string {
	if since.IsZero() {
		return ""
	}
	return PlanAfter(st, st.Due(since))
}

// PlanAfter returns the time at which a step is due, as text to append to a reason. It
// returns "" if the step does not wait for a time.
func PlanAfter(st *state.State, due blocks.Time) string {
	if due.IsZero() || !due.Std().After(st.Cluster.TakenAt) {
		return ""
	}
	return fmt.Sprintf("; plan again after %s", phrase.Time(due.Std().Add(time.Second-1).Truncate(time.Second)))
}

// HostOf returns the node in a value of [GuardOwner], or "".
func HostOf(owner string) string { return blocks.ParseOwner(owner).Node() }

// LeftBehind returns a [LeftBehindError] with a text that describes the object that
// remains.
func LeftBehind(r blocks.Resource, name, format string, args ...any) error {
	return &LeftBehindError{Resource: r, Name: name, State: fmt.Sprintf(format, args...)}
}
