package journal

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// Kind is the kind of a journal, as its first line says.
const Kind = "RepairJournal"

// Header is the first line of a journal.
type Header struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	StartedAt  audit.Time          `json:"startedAt"`
	Cluster    audit.ReportCluster `json:"cluster"`
	// Plan is what is carried out; nil in the journal of an undo.
	Plan *repair.Plan `json:"plan,omitempty"`
	// Undoes names the journal that an undo takes back.
	Undoes string `json:"undoes,omitempty"`
}

// Event is what a line of a journal tells.
type Event string

// The events of a journal.
const (
	// EventStart: a step is about to be written.
	EventStart Event = "start"
	// EventChange: a write is about to be sent.
	EventChange Event = "change"
	// EventEnd: a step has ended, with its outcome.
	EventEnd Event = "end"
	// EventResume: another run goes on where one broke off.
	EventResume Event = "resume"
)

// Entry is one line of a journal after the first.
type Entry struct {
	Event Event `json:"event"`
	// At is the API server's clock as last known.
	At     audit.Time     `json:"at"`
	Step   string         `json:"step,omitempty"`
	Change *repair.Change `json:"change,omitempty"`
	// Status, Code and Reason are a step's outcome.
	Status repair.Status   `json:"status,omitempty"`
	Code   repair.SkipCode `json:"code,omitempty"`
	Reason string          `json:"reason,omitempty"`
}
