package journal

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// Kind is the kind field of a journal's header.
const Kind = "RepairJournal"

// Header is the first line of a journal.
type Header struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	StartedAt  audit.Time          `json:"startedAt"`
	Cluster    audit.ReportCluster `json:"cluster"`
	// Plan is the applied plan; nil in the journal of an undo.
	Plan *repair.Plan `json:"plan,omitempty"`
	// Undoes is the path of the journal that an undo reverts.
	Undoes string `json:"undoes,omitempty"`
	// Continues are the journals, in the same directory, of interrupted runs that this run
	// continues with a plan of its own. Together they are one run.
	Continues []string `json:"continues,omitempty"`
}

// Event is the kind of a journal entry.
type Event string

// Events of a journal.
const (
	// EventStart: a step starts.
	EventStart Event = "start"
	// EventChange: a write is about to be sent.
	EventChange Event = "change"
	// EventEnd: a step has ended, with its outcome.
	EventEnd Event = "end"
	// EventResume: another run continues an interrupted one.
	EventResume Event = "resume"
)

// Entry is a line of a journal after the header.
type Entry struct {
	Event Event `json:"event"`
	// At is the API server's time as last read.
	At     audit.Time     `json:"at"`
	Step   string         `json:"step,omitempty"`
	Change *repair.Change `json:"change,omitempty"`
	// Status, Code and Reason are a step's outcome.
	Status repair.Status   `json:"status,omitempty"`
	Code   repair.SkipCode `json:"code,omitempty"`
	Reason string          `json:"reason,omitempty"`
}
