package source

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// lookups reads the kernel's own answers.
func (d *viewDraft) lookups(r *jsonReader) {
	if r.peek() != '[' {
		if !r.null() {
			d.view.LookupsPartial = true
			d.problem("lookups", "is no list")
		}
		return
	}
	r.array(func(int) {
		if d.refused != "" {
			return
		}
		field, before := r.field(), len(r.faults)
		var l blocks.HostLookup
		var dst, match string
		object := r.object(func(key []byte) {
			switch string(key) {
			case "dst":
				dst = string(orEmpty(r.str()))
			case "result":
				l.Result = d.text(r)
			case "match":
				match = string(orEmpty(r.str()))
			case "gateway":
				l.Gateway = d.text(r)
			case "dev":
				l.Dev = d.text(r)
			case "table":
				l.Table = d.word(r)
			}
		})
		faults := slices.Clone(r.faults[before:])
		r.faults = r.faults[:before]
		var ok, okMatch bool
		l.Dst, ok = exactPrefix(dst)
		l.Match, okMatch = exactPrefix(match)
		bad := func(what, reason string) {
			d.view.LookupsPartial = true
			d.problem(field+what, reason)
		}
		switch {
		case !object:
			bad("", "is no object")
		case len(faults) > 0:
			bad("", "is not a lookup: "+faults[0].reason)
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
	})
}
