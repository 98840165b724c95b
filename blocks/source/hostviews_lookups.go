package source

import "github.com/calico-audit/calico-audit/blocks"

// lookups reads the kernel's own answers.
func (d *viewDraft) lookups(r *jsonReader) {
	d.entries(r, "lookups", "a lookup", &d.view.LookupsPartial, func(_ *jsonReader, bad func(field, reason string)) (members, func()) {
		var l blocks.HostLookup
		var dst, match string
		return members{"dst": &dst, "result": &l.Result, "match": &match, "gateway": &l.Gateway, "dev": &l.Dev, "table": (*word)(&l.Table)}, func() {
			var ok, okMatch bool
			l.Dst, ok = exactPrefix(dst)
			l.Match, okMatch = exactPrefix(match)
			switch {
			case !ok:
				bad(".dst", notA("CIDR", dst))
			case l.Result == "":
				bad(".result", "is missing")
			case match != "" && (!okMatch || !l.Match.Overlaps(l.Dst)):
				bad(".match", notA("CIDR around dst", match))
			case !d.concerned.OverlapsPrefix(l.Dst) || d.full(len(d.view.Lookups), "lookups"):
			default:
				d.view.Lookups = append(d.view.Lookups, l)
			}
		}
	})
}
