package source

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var handles = describe(kind{
	resource: blocks.Handles, names: []string{"IPAMHandle"},
	keeps: calicoObject(roleHandle,
		value("handleID", 0, roleHandle), &shape{key: "block", form: formMap, role: roleByCIDR}, value("deleted", 0, roleBool)),
}, column[blocks.Handle]{
	json: (*decoder).handle,
	in:   func(s *blocks.Snapshot) *[]blocks.Handle { return &s.Handles },
})

// handle reads an IPAMHandle (libcalico-go lib/apis/v3/ipam_handle.go). A count
// that is none is left out, as a gap of its own.
func (d *decoder) handle(r *jsonReader) (h blocks.Handle, ok bool) {
	hasID := false
	found := d.object(r, &h.Meta, metaHooks{}, func(key []byte) {
		switch string(key) {
		case "handleID":
			if hasID = !r.null(); hasID {
				h.ID = d.text(r)
			}
		case "block":
			h.Blocks = d.handleCounts(r)
		case "deleted":
			h.SoftDeleted = flexibleBool(r)
		}
	}, nil)
	if found && !hasID {
		r.faultAt("spec.handleID", "is missing")
	}
	return h, d.whole(r, &h.Meta, "spec.block")
}

// handleCounts reads a handle's counts by block.
func (d *decoder) handleCounts(r *jsonReader) []blocks.HandleCount {
	var out []blocks.HandleCount
	r.object(func(key []byte) {
		p, ok := parseCIDR(string(key))
		if !ok {
			r.fault(notA("CIDR", key))
			return
		}
		if n, ok := r.int(); ok {
			out = append(out, blocks.HandleCount{CIDR: p, Count: int(n)})
		}
	})
	slices.SortStableFunc(out, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return out
}
