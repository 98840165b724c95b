package repair

import (
	"encoding/json"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Change is one write as recorded in a journal.
type Change struct {
	// Step is the ID of the change's step.
	Step string `json:"step"`
	// Verb is "create", "patch", "delete" or "evict".
	Verb     string          `json:"verb"`
	Resource blocks.Resource `json:"resource"`
	Name     string          `json:"name"`
	// Before is the object as it was stored; absent for a create. After is the object
	// that will be stored, as far as known beforehand; absent for a delete.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Back is true for a write that reverts an earlier write of the same step.
	Back bool `json:"back,omitempty"`
}

// Verbs of a change.
const (
	VerbCreate = "create"
	VerbPatch  = "patch"
	VerbDelete = "delete"
	// VerbEvict requests the eviction of a pod; the change's name is "NAMESPACE/NAME".
	VerbEvict = "evict"
)

// Recorder records each change before it is sent. If Record fails, the write must not be
// sent, because it could not be undone later. For a change that reverts another, Record
// does not fail if the same step has recorded the object before.
type Recorder interface {
	Record(c Change) error
}

// Ref returns the changed object.
func (c *Change) Ref() blocks.Ref { return blocks.Ref{Resource: c.Resource, Name: c.Name} }

// Was returns the object as it was stored before the change, or the zero value if it
// cannot be parsed.
func (c *Change) Was() Stored { return StoredObject(c.Before) }

// StepLog is a journal's record of one step over all runs that wrote it. A change is
// recorded before it is sent, so its record does not prove that it was made.
type StepLog struct {
	// Changes are the step's writes in the order of sending.
	Changes []Sent
	// Ended is the last recorded outcome, or "" without one.
	Ended Status
	// Started is true if the step was started and no run has recorded an outcome. An
	// outcome of a later run that did not reach or could not evaluate the step does not
	// count.
	Started bool
	// Unfinished is true if parts of the step may have been written and no run has
	// completed it, because a run died or failed during the step.
	Unfinished bool
	// Unwritten is true if no write was sent or every write was rejected.
	Unwritten bool
	// Deleted holds the UIDs of the objects that the step deleted when it was last tried, provided
	// that they are gone. They were marked before, or the deletion is known to have succeeded.
	Deleted map[blocks.Ref]string
	// Freed is true if the step's own write freed an address. That is certain if the step ended in
	// [Done] or continued with the next object, and did not create the reservation again. A block's
	// sequence number is no proof, because a release by the node raises it, too.
	Freed bool
	// Freeing is the last write that releases an address; nil if there is none, or if the
	// step reserved the address again.
	Freeing *Sent
}

// Sent is a change with the time at which it was sent, by the API server's clock as last
// read.
type Sent struct {
	*Change
	At audit.Time
}

// UID returns the UID of the object before the change, or "" if it did not exist.
func (c *Change) UID() string { return c.Was().Metadata.UID }

// First returns the first change of a resource, or nil.
func (l *StepLog) First(r blocks.Resource) *Change {
	for _, c := range l.Changes {
		if c.Resource == r {
			return c.Change
		}
	}
	return nil
}

// DeleteSent reports whether the step, when it was last tried, deleted the change's object,
// provided that the object is gone.
func (l *StepLog) DeleteSent(c *Change) bool {
	uid, sent := l.Deleted[c.Ref()]
	return sent && uid == c.UID()
}

// Ours reports whether only this program has written an object since the step, according to the
// timestamps. In etcd, which has none, the record of the run shows it.
func (l *StepLog) Ours(m blocks.Meta) bool {
	return m.ByUs || len(l.Changes) > 0 && !m.Written.IsZero() && !m.Written.Std().After(l.Changes[len(l.Changes)-1].At.Add(blocks.WriteTimeout+blocks.ClockSkew))
}

// Mark sets blocks.Meta.ByUs of the objects in a snapshot that the step left half-done,
// and returns the objects.
func (l *StepLog) Mark(s *blocks.Snapshot) []blocks.Ref {
	var marked []blocks.Ref
	for _, c := range l.Changes {
		if o := ObjectNamed(s, c.Resource, c.Name); o != nil && (c.Before == nil || o.UID() == c.UID()) && l.Ours(*o.Meta) {
			o.ByUs = true
			marked = append(marked, c.Ref())
		}
	}
	return marked
}
