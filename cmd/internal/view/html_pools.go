package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// poolBars is a pool with its numbers, drawn.
type poolBars struct {
	Name, CIDR string
	Size       int
	Disabled   bool
	Addresses  stackedBar
	Blocks     stackedBar
	// Room says what is left of each.
	AddressText, BlockText string
	Tight                  bool
}

// stackedBar is a bar of segments that make up a whole of 1000.
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
	out := poolBars{
		Name: p.Name, CIDR: p.CIDR, Size: p.BlockSize, Disabled: p.Disabled, Tight: b.Allocatable.IsZero() && !b.Capacity.IsZero(),
		AddressText: fmt.Sprintf("%s of %s in use (%s), %s available", short(a.InUse), short(a.Capacity), percent(a.InUse, a.Capacity), short(a.Available)),
		BlockText: fmt.Sprintf("%s of %s claimed, %s left to claim, %s reclaimable, %s needed",
			short(b.Claimed), short(b.Capacity), short(b.Allocatable), short(b.Reclaimable), short(b.Needed)),
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
	out.Addresses = bar(a.Capacity, []part{
		{"used", "in use", inUse}, {"cooling", "cooling down", blocks.CountOf(cooling)}, {"within", "available in claimed blocks", avail},
		{"free", "available in blocks not claimed", a.Available.Sub(avail)}, {"held", "reserved", a.Capacity.Sub(a.InUse).Sub(a.Available)},
	})
	claimedEmpty := blocks.CountOf(empty)
	if claimedEmpty.Cmp(b.Claimed) > 0 {
		claimedEmpty = b.Claimed
	}
	out.Blocks = bar(b.Capacity, []part{
		{"used", "claimed, with addresses in use", b.Claimed.Sub(claimedEmpty)}, {"empty", "claimed and empty", claimedEmpty},
		{"free", "free to claim", b.Free}, {"held", "reserved", b.Reserved},
	})
	return out
}

type part struct {
	class, text string
	n           blocks.Count
}

// bar stacks parts of a whole. What is there is seen, however small its share.
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
		out.Segments = append(out.Segments, segment{Class: p.class, Text: short(p.n) + " " + p.text, Width: width})
		texts = append(texts, short(p.n)+" "+p.text)
		total += width
	}
	x := 0.0
	for i := range out.Segments {
		s := &out.Segments[i]
		s.Width = s.Width * 1000 / total
		s.X = x
		x += s.Width
	}
	for i := range out.Segments { // the same digits on every machine
		s := &out.Segments[i]
		s.X, s.Width = tenth(s.X), tenth(s.Width)
	}
	out.Label = strings.Join(texts, ", ")
	return out
}

func tenth(f float64) float64 { return float64(int(f*10+0.5)) / 10 }
