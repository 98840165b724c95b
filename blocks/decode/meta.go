package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// metaHooks receive labels, annotations and owner references. Their bytes are only valid
// during the call. Hooks may be nil.
type metaHooks struct {
	label      func(key, value []byte)
	annotation func(key, value []byte)
	owner      func(ownerRef)
	// wrote receives each entry of managedFields.
	wrote func(manager []byte, at blocks.Time)
	// noWritten skips managedFields if no one needs the last write.
	noWritten bool
}

// meta decodes an object's metadata.
func (d *Decoder) meta(r *parse.Reader, m *blocks.Meta, hooks metaHooks) {
	var name, uid, version []byte
	r.Object(func(key []byte) {
		switch string(key) {
		case "name":
			name, _ = r.Bytes()
		case "uid":
			uid, _ = r.Bytes()
		case "resourceVersion":
			version, _ = r.Bytes()
		case "creationTimestamp":
			m.Created = d.seenTime(r)
		case "deletionTimestamp":
			m.Deleting = blocks.TimeOf(r.Time()) // not seenTime: it lies in the future
		case "managedFields":
			if hooks.noWritten && d.Newest == nil {
				return
			}
			if hooks.noWritten {
				r.Quietly(func() { d.sawEntries(r, "time") })
				return
			}
			d.written(r, m, hooks.wrote)
		case "labels":
			stringMap(r, hooks.label)
		case "annotations":
			stringMap(r, hooks.annotation)
		case "namespace":
			if d.Out.Kind.Namespaced {
				d.inNamespace = d.text(r)
			}
		case "ownerReferences":
			if hooks.owner != nil {
				readOwners(r, hooks.owner)
			}
		}
	})
	m.Name, m.Pin = string(name), blocks.PinOf(uid, version) // unique per object, so not shared
}

// written decodes managedFields, which record the writers of an object and their last
// writes.
func (d *Decoder) written(r *parse.Reader, m *blocks.Meta, wrote func([]byte, blocks.Time)) {
	r.Array(func(int) {
		var manager []byte
		var at blocks.Time
		r.Object(func(key []byte) {
			switch string(key) {
			case "manager":
				manager, _ = r.Bytes()
			case "time":
				at = d.seenTime(r)
			}
		})
		m.Wrote(manager, at)
		if wrote != nil {
			wrote(manager, at)
		}
	})
}

// sawEntries records the times in the given member of each element of a list.
func (d *Decoder) sawEntries(r *parse.Reader, member string) {
	r.Array(func(int) {
		r.Object(func(key []byte) {
			if string(key) == member {
				d.seenTime(r)
			}
		})
	})
}

// conditions calls fn for each entry of status.conditions, with the time of its last
// transition. The bytes are only valid during the call.
func (d *Decoder) conditions(r *parse.Reader, fn func(kind, status, reason []byte, at blocks.Time)) {
	r.Array(func(int) {
		var kind, status, reason []byte
		var at blocks.Time
		r.Object(func(key []byte) {
			switch string(key) {
			case "type":
				kind, _ = r.Bytes()
			case "status":
				status, _ = r.Bytes()
			case "reason":
				r.Quietly(func() { reason, _ = r.Bytes() })
			case "lastHeartbeatTime":
				if d.Newest != nil {
					r.Quietly(func() { d.seenTime(r) })
				}
			case "lastTransitionTime":
				r.Quietly(func() { at = d.seenTime(r) })
			}
		})
		fn(kind, status, reason, at)
	})
}

// stringMap calls fn for each member of an object of strings.
func stringMap(r *parse.Reader, fn func(key, value []byte)) {
	if fn == nil {
		return
	}
	r.Object(func(key []byte) {
		if v, ok := r.Bytes(); ok {
			fn(key, v)
		}
	})
}

// seenTime decodes a time and records it with saw.
func (d *Decoder) seenTime(r *parse.Reader) blocks.Time { return d.saw(r.Time()) }
