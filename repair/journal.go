package repair

import (
	"encoding/json"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Change is one write, as the journal keeps it.
type Change struct {
	// Step is the ID of the step that it belongs to.
	Step string `json:"step"`
	// Verb is "create", "patch", "delete" or "evict".
	Verb     string          `json:"verb"`
	Resource blocks.Resource `json:"resource"`
	Name     string          `json:"name"`
	// Before is the object as it was stored; absent for a create. After is what
	// will be stored, as far as it is known beforehand; absent for a delete.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Back is true for a write that takes an earlier one of the same step back.
	Back bool `json:"back,omitempty"`
}

func (c *Change) ref() blocks.Ref { return blocks.Ref{Resource: c.Resource, Name: c.Name} }

// was is the object of a change as it was stored; the zero value if it cannot be read.
func (c *Change) was() stored { return storedObject(c.Before) }

// The verbs of a change.
const (
	VerbCreate = "create"
	VerbPatch  = "patch"
	VerbDelete = "delete"
	// VerbEvict asks for a pod's eviction; its name is "NAMESPACE/NAME".
	VerbEvict = "evict"
)

// Recorder takes down each change before it is sent. A write must not be sent if
// Record fails: what cannot be taken back later must not happen. For a change that
// goes back it does not fail if the same step has taken the object down before.
type Recorder interface {
	Record(c Change) error
}

// JournalKind is the kind of a journal, as its first line says.
const JournalKind = "RepairJournal"

// JournalHeader is the first line of a journal.
type JournalHeader struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	StartedAt  audit.Time          `json:"startedAt"`
	Cluster    audit.ReportCluster `json:"cluster"`
	// Plan is what is carried out; nil in the journal of an undo.
	Plan *Plan `json:"plan,omitempty"`
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

// JournalEntry is one line of a journal after the first.
type JournalEntry struct {
	Event Event `json:"event"`
	// At is the API server's clock as last known.
	At     audit.Time `json:"at"`
	Step   string     `json:"step,omitempty"`
	Change *Change    `json:"change,omitempty"`
	// Status, Code and Reason are a step's outcome.
	Status Status   `json:"status,omitempty"`
	Code   SkipCode `json:"code,omitempty"`
	Reason string   `json:"reason,omitempty"`
}
