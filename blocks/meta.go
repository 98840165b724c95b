package blocks

import (
	"cmp"
	"time"
)

// Meta holds the Kubernetes metadata that an audit needs.
type Meta struct {
	// Name is the object's name, for display and lookup. The spec identifies the object.
	Name string
	Pin
	// Created is metadata.creationTimestamp; zero if absent.
	Created Time
	// Written is the newest time in metadata.managedFields: the last write that set or
	// changed a field. Writes that only remove fields do not count, because the API server
	// then keeps the times. Zero if the object has no managedFields, as in kubectl's
	// default output.
	Written Time
	// Deleting is metadata.deletionTimestamp; zero if absent.
	Deleting Time
	// ByUs is true if the newest write was this program's: its field manager is
	// [FieldManager], and no other manager wrote in the same second. An object between two
	// states is then an unfinished step of this program.
	ByUs bool
}

// Key identifies an object among those of its kind. Namespace is empty for cluster-scoped
// kinds.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or just the name.
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

// Key identifies the object among those of its kind.
func (m *Meta) Key() Key { return Key{Name: m.Name} }

// Metadata returns m. Embedding types inherit it.
func (m *Meta) Metadata() *Meta { return m }

// FieldManager is this program's field manager in metadata.managedFields.
const FieldManager = "calico-audit"

// WriteTimeout bounds the work on one object once it has started, even if the run is
// cancelled.
const WriteTimeout = 2 * time.Minute

// Wrote records an entry of metadata.managedFields.
func (m *Meta) Wrote(manager []byte, at Time) {
	ours := string(manager) == FieldManager
	switch {
	case at.After(m.Written):
		m.Written, m.ByUs = at, ours
	case at == m.Written:
		m.ByUs = m.ByUs && ours
	}
}

// LastWrite returns when the object was last written. It returns false without
// managedFields, because the creation time does not show later writes.
func (m Meta) LastWrite() (Time, bool) {
	if m.Written.IsZero() {
		return 0, false
	}
	return m.Written.Later(m.Created), true
}
