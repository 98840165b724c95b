package decode

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// config decodes metadata, spec and status of an object of a single kind. It returns false if the
// object is broken, which is a gap of the whole resource. It also returns false for an object that
// is not named "default", if its kind drops such objects.
func (d *Decoder) config(r *parse.Reader, m *blocks.Meta, spec, status parse.Members) bool {
	d.object(r, m, metaHooks{}, r.Known(spec), r.Known(status))
	// Calico's clients write each such object with a spec, although it may be empty.
	if d.Dump && !d.hasSpec {
		r.FaultAt("spec", blocks.FieldMissing)
	}
	if r.Err() != nil {
		return false
	}
	checkName(r, m)
	if m.Name != "" && m.Name != blocks.DefaultName {
		return d.Out.Kind.keepsOthers // its content does not matter
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
