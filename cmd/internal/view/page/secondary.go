package page

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// secondaryPools are the Whereabouts pools, the fullest first.
type secondaryPools struct {
	Pools []secondaryPool
	// More counts the pools that are not shown, which have more room.
	More int
	// Lost is true if any drawn address is lost. Drawn is true if any pool has a map.
	Lost, Drawn bool
}

// secondaryPool is a Whereabouts pool with its drawing.
type secondaryPool struct {
	*audit.WhereaboutsPoolReport
	Bar   stackedBar
	Tight bool
	// Map shows the single addresses; nil if the range is too large.
	Map *secondaryMap
}

// secondaryMap is the map of a range, with one address in each cell.
type secondaryMap struct {
	Width, Height int
	// Labels are the first addresses of rows.
	Labels []string
	// Free is the path of assignable, unused addresses.
	Free string
	Uses []secondaryUse
}

// secondaryUse is a recorded address.
type secondaryUse struct{ Class, D, Text string }

const (
	secondaryLargest = 1024 // addresses, for a range with a map
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
		return nil // a damaged report; the numbers are still shown
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
	next := 0 // index of the next use
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
		out.Text += "no pod recorded"
	case u.Lost:
		out.Class, out.Text = "a-leaked", out.Text+u.Pod+", which no longer exists or no longer uses it"
	default:
		out.Text += u.Pod
	}
	return out
}
