package repair

import (
	"encoding/json"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Change is one write, as a journal keeps it.
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

// Ref returns the object that the change is about.
func (c *Change) Ref() blocks.Ref { return blocks.Ref{Resource: c.Resource, Name: c.Name} }

// Was is the object of a change as it was stored; the zero value if it cannot be read.
func (c *Change) Was() Stored { return StoredObject(c.Before) }

// StepLog is what a journal tells of one step, over all runs that wrote it. A change is
// taken down before it is sent, so that by itself it does not say that it was carried out.
type StepLog struct {
	// Changes are its writes, in the order in which they were sent.
	Changes []Sent
	// Ended is its last outcome; "" if none was taken down.
	Ended Status
	// Started is true if it was begun and no run has said what became of it. That a
	// later run did not come to it, or could not evaluate it, says nothing.
	Started bool
	// Unfinished is true if something of it may have been written, and no run has
	// brought it to an end: it died in it, or failed in it.
	Unfinished bool
	// Unwritten is true if what was sent was refused, or nothing was sent.
	Unwritten bool
	// Deleted are the UIDs of the objects whose deletion was sent when the step was
	// tried last. It is sent only after the object was marked, so that if the object was
	// removed then, it was because of the mark.
	Deleted map[blocks.Ref]string
	// Freed is true if it was the step's own write that freed an address: it ended
	// done without a doubt, or went on to the next object, and did not reserve it again. A block's sequence number
	// does not tell, for a release by its node raises it alike.
	Freed bool
}

// Sent is a change with the API server's time, as last known, at which it was sent.
type Sent struct {
	*Change
	At audit.Time
}

// UID returns the UID of a change's object as it was stored; "" if there was none.
func (c *Change) UID() string { return c.Was().Metadata.UID }

// First returns the first change of a resource; nil if there is none.
func (l *StepLog) First(r blocks.Resource) *Change {
	for _, c := range l.Changes {
		if c.Resource == r {
			return c.Change
		}
	}
	return nil
}

// DeleteSent reports whether the deletion of the object of a change was sent when the
// step was tried last.
func (l *StepLog) DeleteSent(c *Change) bool {
	uid, sent := l.Deleted[c.Ref()]
	return sent && uid == c.UID()
}

// Ours reports whether an object was not written since the step by anything but this
// program, as far as times tell.
func (l *StepLog) Ours(m blocks.Meta) bool {
	return m.ByUs || len(l.Changes) > 0 && !m.Written.Std().After(l.Changes[len(l.Changes)-1].At.Add(blocks.WriteTimeout+blocks.ClockSkew))
}

// Mark sets blocks.Meta.ByUs of the objects of a snapshot that the step has left
// half-done, and returns them.
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
