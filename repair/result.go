package repair

import (
	"github.com/calico-audit/calico-audit/audit"
)

// Status is the result of a step.
type Status string

// Results of a step.
const (
	// Done: the step was carried out, and reading the objects again confirms it.
	Done Status = "done"
	// Already: the state is already the one that the step would create.
	Already Status = "already"
	// Skipped: no write was made, for the given reason.
	Skipped Status = "skipped"
	// Failed: a write failed or could not be verified. The reason describes the state of
	// the objects.
	Failed Status = "failed"
	// NotTried: the run ended before the step.
	NotTried Status = "not-tried"
	// Planned: an undo would revert the step.
	Planned Status = "planned"
	// NotNeeded: an undo has nothing to revert, because nothing is missing.
	NotNeeded Status = "not-needed"
)

// SkipCode is the reason of a skip, as one word: a [RefusalCode], or a code below.
type SkipCode string

// Reasons not to carry out a planned step, in addition to refusals.
const (
	// SkipDeleted: the step's target no longer exists.
	SkipDeleted SkipCode = "Gone"
	// SkipChanged: the object is a different one, or was written since the plan.
	SkipChanged SkipCode = "Changed"
	// SkipNotDerived: the current state gives no reason for the step.
	SkipNotDerived SkipCode = "NotDerived"
	// SkipTooSoon: the second observation is due later.
	SkipTooSoon SkipCode = "TooSoon"
	// SkipInterrupted: the run was interrupted before the step.
	SkipInterrupted SkipCode = "Interrupted"
	// SkipUnread: the objects could not be read again.
	SkipUnread SkipCode = "Unread"
	// SkipUnknown: this version does not know the kind of step, or the plan's step and
	// its ID contradict each other.
	SkipUnknown SkipCode = "Unknown"
	// SkipDuplicate: the plan contains the step twice.
	SkipDuplicate SkipCode = "Duplicate"
	// SkipJournal: the journal could not be written, so no write was sent.
	SkipJournal SkipCode = "Journal"
	// SkipStopped: the run stopped because consecutive steps failed.
	SkipStopped SkipCode = "Stopped"
	// SkipRefused: the API server rejects the pod's eviction.
	SkipRefused SkipCode = "EvictionRefused"
	// SkipLimit: the limit of steps was reached.
	SkipLimit SkipCode = "MaxSteps"
	// SkipHarm: undoing the step would do harm.
	SkipHarm SkipCode = "Harm"
	// SkipHalfDone: the step is half-done and can be neither finished nor undone now.
	SkipHalfDone SkipCode = "HalfDone"
	// CodeFinished is used with Planned and Done in an undo: the step was half-done and
	// could not be reverted, so it is finished instead.
	CodeFinished SkipCode = "Finished"
)

// Outcome is the result of one step.
type Outcome struct {
	Step   Step     `json:"step"`
	Status Status   `json:"status"`
	Code   SkipCode `json:"code,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// At is when the step ended, by the API server's clock as last read.
	At audit.Time `json:"at"`
	// HalfDone is true if the step is known to be half-done, whatever its Code.
	HalfDone bool `json:"-"`
}

// ResultKind is the kind field of a stored result.
const ResultKind = "RepairResult"

// Result is the result of applying or undoing a plan.
type Result struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Cluster    audit.ReportCluster `json:"cluster"`
	StartedAt  audit.Time          `json:"startedAt"`
	// Undo is true for the result of an undo.
	Undo     bool      `json:"undo,omitempty"`
	Outcomes []Outcome `json:"outcomes"`
	// Gaps lists failed reads as text.
	Gaps []string `json:"gaps,omitempty"`
	// Journal is the file with the previous version of every written object, or "" if no
	// write was made.
	Journal string `json:"journal,omitempty"`
}

// Left reports whether any step is still open.
func (r *Result) Left() bool {
	for i := range r.Outcomes {
		if r.Outcomes[i].Open() {
			return true
		}
	}
	return false
}

// Open reports whether the step is still to be done.
func (o *Outcome) Open() bool {
	return o.Status != Done && o.Status != Already && o.Status != NotNeeded
}

// Count returns the number of steps with a status.
func (r *Result) Count(s Status) int {
	n := 0
	for i := range r.Outcomes {
		if r.Outcomes[i].Status == s {
			n++
		}
	}
	return n
}
