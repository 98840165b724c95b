package decode

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// DefaultName is the name of the only object of a configuration kind that counts.
const DefaultName = "default"

// config decodes metadata and spec of an object of a single kind. It returns false if the
// object is broken, which is a gap of the whole resource, or not named "default".
func (d *Decoder) config(r *JSONReader, m *blocks.Meta, spec Members) bool {
	d.object(r, m, metaHooks{}, r.members(spec), nil)
	if r.err != nil {
		return false
	}
	checkName(r, m)
	if m.Name != "" && m.Name != DefaultName {
		return false
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
