package repair

import (
	"github.com/calico-audit/calico-audit/audit"
)

// Status is what became of a step.
type Status string

// What became of a step.
const (
	// Done: it was carried out, and reading the objects again shows it.
	Done Status = "done"
	// Already: the state that the step would make is there already.
	Already Status = "already"
	// Skipped: nothing was written, for the reason given.
	Skipped Status = "skipped"
	// Failed: a write failed or could not be verified; the reason says in what
	// state the objects were left.
	Failed Status = "failed"
	// NotTried: the run ended before it came to the step.
	NotTried Status = "not-tried"
	// Planned: what an undo would take back, before it does.
	Planned Status = "planned"
	// NotNeeded: an undo has nothing to take back, because nothing is missing.
	NotNeeded Status = "not-needed"
)

// SkipCode is why a step was skipped, in one word: a [RefusalCode], or one of
// those below.
type SkipCode string

// Why a step of a plan is not carried out, beside what refuses it again.
const (
	// SkipDeleted: what the step was about does not exist any more.
	SkipDeleted SkipCode = "Gone"
	// SkipChanged: the object is another, or was written since the plan.
	SkipChanged SkipCode = "Changed"
	// SkipNotDerived: the state as it is now gives no reason for such a step.
	SkipNotDerived SkipCode = "NotDerived"
	// SkipTooSoon: the second observation is due later.
	SkipTooSoon SkipCode = "TooSoon"
	// SkipInterrupted: the run was interrupted before.
	SkipInterrupted SkipCode = "Interrupted"
	// SkipUnread: the objects could not be read again.
	SkipUnread SkipCode = "Unread"
	// SkipUnknown: this version knows no such step, or the plan's step and its ID
	// contradict each other.
	SkipUnknown SkipCode = "Unknown"
	// SkipDuplicate: the plan has the step twice.
	SkipDuplicate SkipCode = "Duplicate"
	// SkipJournal: the journal could not be written, so nothing else was.
	SkipJournal SkipCode = "Journal"
	// SkipStopped: the run stopped because step after step failed.
	SkipStopped SkipCode = "Stopped"
	// SkipRefused: the API server does not let the pod be evicted.
	SkipRefused SkipCode = "EvictionRefused"
	// SkipLimit: the bound on steps was reached.
	SkipLimit SkipCode = "MaxSteps"
	// SkipHarm: taking the step back would do harm.
	SkipHarm SkipCode = "Harm"
	// SkipHalfDone: the step is half-done, and can be neither finished nor taken back
	// now.
	SkipHalfDone SkipCode = "HalfDone"
	// CodeFinished goes with Planned and Done in an undo: the step was half-done and
	// could not be taken back, and is finished instead.
	CodeFinished SkipCode = "Finished"
)

// Outcome is what became of one step.
type Outcome struct {
	Step   Step     `json:"step"`
	Status Status   `json:"status"`
	Code   SkipCode `json:"code,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// At is when it ended, by the API server's clock as last read.
	At audit.Time `json:"at"`
}

// ResultKind is the kind of a result as stored.
const ResultKind = "RepairResult"

// Result is what became of a plan.
type Result struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Cluster    audit.ReportCluster `json:"cluster"`
	StartedAt  audit.Time          `json:"startedAt"`
	// Undo is true for what became of an undo.
	Undo     bool      `json:"undo,omitempty"`
	Outcomes []Outcome `json:"outcomes"`
	// Gaps says what could not be read, in words.
	Gaps []string `json:"gaps,omitempty"`
	// Journal is the file that holds every object as it was; "" if nothing was
	// written.
	Journal string `json:"journal,omitempty"`
}

// Left reports whether steps were left undone.
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

// Count returns how many steps ended in a status.
func (r *Result) Count(s Status) int {
	n := 0
	for i := range r.Outcomes {
		if r.Outcomes[i].Status == s {
			n++
		}
	}
	return n
}
