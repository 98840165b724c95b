package decode

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// DefaultName is the name of the one object of a configuration kind that counts
// for the whole cluster.
const DefaultName = "default"

// config reads metadata and spec of an object of a single kind. It returns false if
// the object is not to be kept: because it is broken, which is a gap of the whole
// resource, or because it is not the one named "default".
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
		// There is one such object, so that without it the whole resource is
		// unknown: Calico's defaults must not be taken for it.
		f := r.Faults[0]
		g := d.gap(m, f)
		g.Name, g.Reason = "", fmt.Sprintf("object %q: %s", g.Name, strings.TrimSpace(f.Field+" "+f.Reason))
		return false
	}
	return true
}
