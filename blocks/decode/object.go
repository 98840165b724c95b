package decode

import (
	"cmp"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// noName is the name in gaps of nameless objects: a gap without a name would concern all
// objects of its kind.
const noName = "(no name)"

// gap records that the current object could not be decoded completely.
func (d *Decoder) gap(m *blocks.Meta, f parse.Fault) *blocks.Gap {
	k, key := d.Out.Kind, blocks.Key{Namespace: d.inNamespace, Name: cmp.Or(m.Name, noName)}
	d.Out.Gaps = append(d.Out.Gaps, blocks.Gap{
		Resource: k.Resource, Name: key.String(), Field: f.Field, Source: d.Source, Reason: f.Reason,
		Tolerated: m.Name != "" && k.tolerates != nil && k.tolerates(f.Field),
	})
	return &d.Out.Gaps[len(d.Out.Gaps)-1]
}

// checkName adds a fault if the object has no name.
func checkName(r *parse.Reader, m *blocks.Meta) {
	if m.Name == "" {
		r.FaultAt("metadata.name", blocks.FieldMissing)
	}
}

// object decodes an object's metadata, and the members of its spec and status with the
// given functions, which may be nil. found reports whether there is an object at all.
func (d *Decoder) object(r *parse.Reader, m *blocks.Meta, hooks metaHooks, spec, status func(key []byte)) (found bool) {
	d.hasSpec = false
	var lacks []string
	if d.Dump && (!d.Native || !d.Out.Kind.Single) { // the newer group's API server has defaults
		lacks = d.Out.Kind.always
	}
	found = r.Object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, m, hooks)
		case "spec":
			d.hasSpec = spec == nil || r.Object(func(key []byte) {
				if i := slices.Index(lacks, string(key)); i >= 0 {
					lacks = slices.Concat(lacks[:i], lacks[i+1:])
				}
				spec(key)
			})
		case "status":
			if status != nil {
				r.Object(status)
			}
		}
	})
	if d.hasSpec && len(lacks) > 0 {
		r.FaultAt("spec."+lacks[0], blocks.FieldMissing)
	}
	return found
}

// anywhere makes [Decoder.whole] keep an object despite any fault, if it has a name.
const anywhere = "*"

// whole reports whether to keep the decoded object. A fault turns the object into a gap. Faults in
// an entry of the list or map named partial become gaps of their own instead.
func (d *Decoder) whole(r *parse.Reader, m *blocks.Meta, partial string) bool {
	if r.Err() != nil {
		return false
	}
	checkName(r, m)
	for _, f := range r.Faults {
		if m.Name == "" || partial != anywhere && !inside(f.Field, partial) {
			d.gap(m, f)
			return false
		}
	}
	for _, f := range r.Faults {
		d.gap(m, f)
	}
	return true
}

// inside reports whether a field is, or lies in, an entry of a list or map.
func inside(field, list string) bool {
	rest, found := strings.CutPrefix(field, list)
	return found && list != "" && rest != "" && (rest[0] == '[' || rest[0] == '.')
}
