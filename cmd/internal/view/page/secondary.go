package page

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// secondaryPools are the pools of Whereabouts', the fullest first.
type secondaryPools struct {
	Pools []secondaryPool
	// More is how many are not shown, which have more room.
	More int
	// Lost is true if an address is drawn as lost.
	Lost, Drawn bool
}

// secondaryPool is a pool of Whereabouts' with its numbers, drawn.
type secondaryPool struct {
	*audit.WhereaboutsPoolReport
	Bar   stackedBar
	Tight bool
	// Map has the single addresses; nil for a range that is too large for it.
	Map *secondaryMap
}

// secondaryMap is a range, an address a cell.
type secondaryMap struct {
	Width, Height int
	// Labels are the addresses that rows begin at.
	Labels []string
	// Free are the addresses that can be assigned and are not in use.
	Free string
	Uses []secondaryUse
}

// secondaryUse is an address that is recorded.
type secondaryUse struct{ Class, D, Text string }

const (
	secondaryLargest = 1024 // addresses of a range that is drawn
	secondaryCell    = 16   // pixels
)

func newSecondaryPools(r *audit.Report) *secondaryPools {
	if len(r.WhereaboutsPools) == 0 {
		return nil
	}
	out := &secondaryPools{}
	for i, p := range view.FullestFirst(r.WhereaboutsPools) {
		if i == view.SecondaryShown {
			out.More = len(r.WhereaboutsPools) - i
			break
		}
		x := secondaryPool{WhereaboutsPoolReport: p, Map: newSecondaryMap(p)}
		if p.Capacity != nil {
			x.Tight = p.Available.IsZero()
			x.Bar = bar(*p.Capacity, []part{{"used", "in use", p.Capacity.Sub(*p.Available)}, {"free", "available", *p.Available}})
		}
		if x.Map != nil {
			out.Drawn = true
			for _, u := range x.Map.Uses {
				out.Lost = out.Lost || u.Class == "a-leaked"
			}
		}
		out.Pools = append(out.Pools, x)
	}
	return out
}

// newSecondaryMap draws a pool's range; nil if it is too large.
func newSecondaryMap(p *audit.WhereaboutsPoolReport) *secondaryMap {
	cidr, err := netip.ParsePrefix(p.Range)
	if err != nil {
		return nil // of a damaged report; the numbers are shown all the same
	}
	n, few := blocks.Addresses(cidr).Int()
	if !few || n > secondaryLargest || p.Capacity == nil {
		return nil
	}
	columns := min(n, 32)
	if n > 256 {
		columns = 64
	}
	m := &secondaryMap{Width: columns * secondaryCell, Height: n / columns * secondaryCell}
	var free path
	next := 0 // of the uses
	a := cidr.Masked().Addr()
	for i := range n {
		x, y := i%columns*secondaryCell, i/columns*secondaryCell
		if x == 0 {
			m.Labels = append(m.Labels, a.String())
		}
		switch {
		case next < len(p.Allocations) && p.Allocations[next].IP == a:
			m.Uses = append(m.Uses, newSecondaryUse(&p.Allocations[next], x, y))
			next++
		case slices.ContainsFunc(p.Assignable, func(r netipx.IPRange) bool { return r.Contains(a) }):
			free.rect(x+1, y+1, secondaryCell-2, secondaryCell-2)
		}
		a = a.Next()
	}
	m.Free = free.String()
	return m
}

func newSecondaryUse(u *audit.WhereaboutsUse, x, y int) secondaryUse {
	out := secondaryUse{"a-used", new(path).rect(x+1, y+1, secondaryCell-2, secondaryCell-2).String(), u.IP.String() + ": "}
	switch {
	case u.Pod == "":
		out.Text += "no pod is recorded"
	case u.Lost:
		out.Class, out.Text = "a-leaked", out.Text+u.Pod+", which is gone or has given it up"
	default:
		out.Text += u.Pod
	}
	return out
}
