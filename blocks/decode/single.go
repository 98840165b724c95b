package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// DefaultName is the name of the only object of a configuration kind that counts.
const DefaultName = "default"

// config decodes metadata, spec and status of an object of a single kind. It returns false if the
// object is broken, which is a gap of the whole resource, or if it is not named "default"
// and its kind drops such objects.
func (d *Decoder) config(r *JSONReader, m *blocks.Meta, spec, status Members) bool {
	lacks, members := d.expects(), r.members(spec)
	d.object(r, m, metaHooks{}, func(key []byte) {
		lacks = without(lacks, key)
		members(key)
	}, r.members(status))
	// Calico's clients write each such object with a spec, although it may be empty.
	if d.Dump && !d.hasSpec {
		r.faultAt("spec", "is missing")
	} else if !d.Native { // the API server of the newer group has defaults
		missing(r, lacks)
	}
	if r.err != nil {
		return false
	}
	checkName(r, m)
	if m.Name != "" && m.Name != DefaultName {
		return d.Out.Kind.keepsOthers // whatever it says: it does not count
	}
	if len(r.Faults) > 0 {
		// This is the only such object, so the whole resource is unknown. Calico's defaults
		// must not replace it.
		f := r.Faults[0]
		g := d.gap(m, f)
		g.Name, g.Reason = "", fmt.Sprintf("object %q: %s", g.Name, strings.TrimSpace(f.Field+" "+f.Reason))
		return false
	}
	return true
}

// expects returns the members that the spec of the current object must have.
func (d *Decoder) expects() []string {
	if d.Dump {
		return d.Out.Kind.always
	}
	return nil
}

func without(expected []string, member []byte) []string {
	i := slices.Index(expected, string(member))
	if i < 0 {
		return expected
	}
	return slices.Concat(expected[:i], expected[i+1:])
}

// missing adds a fault for the first expected member that the object lacks.
func missing(r *JSONReader, expected []string) {
	if len(expected) > 0 {
		r.faultAt("spec."+expected[0], "is missing")
	}
}
