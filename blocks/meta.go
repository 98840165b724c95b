package blocks

import (
	"cmp"
	"time"
)

// Meta is what an audit needs of an object's Kubernetes metadata.
type Meta struct {
	// Name is the object's name. Objects are identified by their spec; the name
	// serves to show and to find them.
	Name string
	Pin
	// Created is metadata.creationTimestamp; zero when absent.
	Created Time
	// Written is the newest time in metadata.managedFields: the last write that
	// set or changed a field. (One that only removes fields does not count,
	// because the API server leaves the times alone then.) Zero when the object
	// carries no managedFields, as in what kubectl prints by default.
	Written Time
	// Deleting is metadata.deletionTimestamp; zero when absent.
	Deleting Time
	// ByUs is true if the newest of the writes was this program's alone: its field
	// manager is [FieldManager], and no other manager wrote in the same second. An
	// object that is in between two states then is a step of ours that did not end.
	ByUs bool
}

// Key names an object among those of its kind. Namespace is empty for kinds that have
// none.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Key names the object among those of its kind.
func (m *Meta) Key() Key { return Key{Name: m.Name} }

// Metadata returns m, of whatever object it is.
func (m *Meta) Metadata() *Meta { return m }

// FieldManager is the name under which this program writes, as the API server takes
// it down in metadata.managedFields.
const FieldManager = "calico-audit"

// WriteTimeout bounds what this program does to one object once it was begun, whatever
// becomes of the run.
const WriteTimeout = 2 * time.Minute

// Wrote records one entry of metadata.managedFields.
func (m *Meta) Wrote(manager []byte, at Time) {
	ours := string(manager) == FieldManager
	switch {
	case at.After(m.Written):
		m.Written, m.ByUs = at, ours
	case at == m.Written:
		m.ByUs = m.ByUs && ours
	}
}

// LastWrite returns when the object was last written, as far as its metadata
// tells, and false when they do not tell: without managedFields the creation
// time says nothing about later writes.
func (m Meta) LastWrite() (Time, bool) {
	if m.Written.IsZero() {
		return 0, false
	}
	return m.Written.Later(m.Created), true
}
