package files

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// lookups reads the kernel's own answers.
func (d *viewDraft) lookups(r *decode.JSONReader) {
	d.entries(r, "lookups", "a lookup", &d.view.LookupsPartial, func(_ *decode.JSONReader, bad func(field, reason string)) (decode.Members, func()) {
		var l blocks.HostLookup
		var dst, match string
		return decode.Members{"dst": &dst, "result": &l.Result, "match": &match, "gateway": &l.Gateway, "dev": &l.Dev, "table": (*decode.Word)(&l.Table)}, func() {
			var ok, okMatch bool
			l.Dst, ok = exactPrefix(dst)
			l.Match, okMatch = exactPrefix(match)
			switch {
			case !ok:
				bad(".dst", decode.NotA("CIDR", dst))
			case l.Result == "":
				bad(".result", "is missing")
			case match != "" && (!okMatch || !l.Match.Overlaps(l.Dst)):
				bad(".match", decode.NotA("CIDR around dst", match))
			case !d.concerned.OverlapsPrefix(l.Dst) || d.full(len(d.view.Lookups), "lookups"):
			default:
				d.view.Lookups = append(d.view.Lookups, l)
			}
		}
	})
}
