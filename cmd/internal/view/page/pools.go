package page

import (
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// poolBars is a pool with bars for its numbers.
type poolBars struct {
	*audit.PoolReport
	// The bars are empty if the share in use is unknown.
	AddressBar, BlockBar   stackedBar
	AddressText, BlockText string
	Tight                  bool
}

// stackedBar is a bar of segments with a total width of 1000.
type stackedBar struct {
	Label    string
	Segments []segment
}

type segment struct {
	Class, Text string
	X, Width    float64
}

func newPoolBars(r *audit.Report, p *audit.PoolReport) poolBars {
	a, b := p.Addresses, p.Blocks
	out := poolBars{PoolReport: p, Tight: b.Allocatable.IsZero() && !b.Capacity.IsZero(), AddressText: view.AddressesText(r, p), BlockText: view.BlocksText(r, p)}
	if !view.LeftKnown(r, p) {
		out.AddressBar.Label, out.BlockBar.Label = "unknown", "unknown"
		return out
	}
	cooling, within, empty := 0, 0, 0
	for i := range r.Blocks {
		if x := &r.Blocks[i]; x.Pool == p.Name {
			cooling, within = cooling+x.Cooling, within+x.Available
			if x.InUse == 0 {
				empty++
			}
		}
	}
	inUse, avail := a.InUse.Sub(blocks.CountOf(cooling)), blocks.CountOf(within)
	if avail.Cmp(a.Available) > 0 {
		avail = a.Available
	}
	out.AddressBar = bar(a.Capacity, []part{
		{"used", "in use", inUse}, {"cooling", "cooling down", blocks.CountOf(cooling)}, {"within", "available in claimed blocks", avail},
		{"free", "available in unclaimed blocks", a.Available.Sub(avail)}, {"held", "reserved", a.Capacity.Sub(a.InUse).Sub(a.Available)},
	})
	claimedEmpty := blocks.CountOf(empty)
	if claimedEmpty.Cmp(b.Claimed) > 0 {
		claimedEmpty = b.Claimed
	}
	out.BlockBar = bar(b.Capacity, []part{
		{"used", "claimed, with addresses in use", b.Claimed.Sub(claimedEmpty)}, {"empty", "claimed and empty", claimedEmpty},
		{"free", "free", b.Free}, {"held", "reserved", b.Reserved},
	})
	return out
}

type part struct {
	class, text string
	n           blocks.Count
}

// bar returns a bar for the parts of a whole. Non-empty parts have a minimum width, so that
// they are visible.
func bar(whole blocks.Count, parts []part) stackedBar {
	const least = 4
	var out stackedBar
	var texts []string
	total := 0.0
	for _, p := range parts {
		if p.n.Cmp(blocks.Count{}) <= 0 {
			continue
		}
		width := max(p.n.Share(whole)*1000, least)
		text := view.Short(p.n) + " " + p.text
		out.Segments, texts = append(out.Segments, segment{Class: p.class, Text: text, Width: width}), append(texts, text)
		total += width
	}
	x := 0.0
	for i := range out.Segments {
		s := &out.Segments[i]
		s.Width = s.Width * 1000 / total
		s.X = x
		x += s.Width
	}
	for i := range out.Segments { // round, for the same digits on all machines
		s := &out.Segments[i]
		s.X, s.Width = tenth(s.X), tenth(s.Width)
	}
	out.Label = strings.Join(texts, ", ")
	return out
}

func tenth(f float64) float64 { return float64(int(f*10+0.5)) / 10 }
