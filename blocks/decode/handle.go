package decode

import (
	"slices"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var handles = describe(Kind{
	Resource: blocks.Handles, Names: []string{libapiv3.KindIPAMHandle},
	Absent: always("no IPAMHandle in the files"), always: []string{"block"}, Record: true,
	keeps: keep.CalicoObject(keep.Handle,
		parse.Value("handleID", 0, keep.Handle), &parse.Mask{Key: "block", Schema: parse.SchemaMap, Class: keep.ByCIDR}, parse.Value("deleted", 0, keep.Bool)),
}, descriptor[blocks.Handle]{
	json:   (*Decoder).handle,
	shared: func(s *blocks.Snapshot) *[]*blocks.Handle { return &s.Handles },
})

// handle decodes an IPAMHandle (libcalico-go lib/apis/v3/ipam_handle.go). An invalid count
// is omitted, with a gap of its own.
func (d *Decoder) handle(r *parse.Reader, h *blocks.Handle) bool {
	hasID := false
	found := d.object(r, &h.Meta, metaHooks{}, func(key []byte) {
		switch string(key) {
		case "handleID":
			if hasID = !r.Null(); hasID {
				id, _ := r.Bytes()
				if h.ID = h.Name; string(id) != h.Name {
					h.ID = string(id)
				}
			}
		case "block":
			h.Blocks = d.handleCounts(r)
		case "deleted":
			h.SoftDeleted = flexibleBool(r)
		}
	}, nil)
	if found && !hasID {
		r.FaultAt("spec.handleID", blocks.FieldMissing)
	}
	return d.whole(r, &h.Meta, "spec.block")
}

// handleCounts decodes a handle's counts by block.
func (d *Decoder) handleCounts(r *parse.Reader) []blocks.HandleCount {
	var out []blocks.HandleCount
	r.Object(func(key []byte) {
		p, ok := blocks.ParseCIDR(string(key))
		if !ok {
			r.Fault(parse.NotA("CIDR", key))
			return
		}
		if n, ok := r.Int(); ok {
			out = append(out, blocks.HandleCount{CIDR: p, Count: int(n)})
		}
	})
	slices.SortStableFunc(out, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	if len(out) == 1 { // nearly always, and equal for most pods of a block
		if d.counts == nil {
			d.counts = map[blocks.HandleCount][]blocks.HandleCount{}
		}
		if d.counts[out[0]] == nil {
			d.counts[out[0]] = out
		}
		return d.counts[out[0]]
	}
	return out
}
