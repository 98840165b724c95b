package audit

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Result is what the checks of one run found.
type Result struct {
	Findings []Finding
	// Skipped are the checks that gave no verdict, and verdicts withheld.
	Skipped []Skipped
	// Inconclusive are the IDs of the checks that gave no verdict as a whole, those of
	// host views where there is none included. What they found nevertheless stands, and
	// what they did not find may be there.
	Inconclusive []string
	// Unread is what a second reading could not read.
	Unread []blocks.Gap

	live bool
	// viewed are the nodes with host views: true if all of them were read in the reading
	// that the result is of.
	viewed map[string]bool
}

// Run runs checks over a State.
func Run(st *state.State, checks []*Check) *Result {
	r := &Result{live: st.Cluster.Live, viewed: map[string]bool{}}
	for i := range st.Hosts.Views {
		v := &st.Hosts.Views[i]
		fresh, other := r.viewed[v.Node]
		r.viewed[v.Node] = !v.Earlier && (fresh || !other)
	}
	for _, c := range checks {
		if g := st.FirstMissing(c.Requires); g != nil {
			r.Skipped = append(r.Skipped, Skipped{c.ID, g.String()})
			r.Inconclusive = append(r.Inconclusive, c.ID)
			continue
		}
		f := Findings{Check: c, state: st}
		c.Run(st, &f)
		r.Findings = append(r.Findings, f.all...)
		r.Skipped = append(r.Skipped, f.skipped...)
		if f.inconclusive || c.HostViews && len(st.Hosts.Views) == 0 {
			r.Inconclusive = append(r.Inconclusive, c.ID)
		}
	}
	r.sort()
	return r
}

// Join makes one result of several that were made from the same State.
func Join(results ...*Result) *Result {
	out := &Result{viewed: map[string]bool{}}
	for _, r := range results {
		maps.Copy(out.viewed, r.viewed) // which all have of that State
		out.live = out.live || r.live
		out.Findings = append(out.Findings, r.Findings...)
		out.Skipped = append(out.Skipped, r.Skipped...)
		out.Inconclusive = append(out.Inconclusive, r.Inconclusive...)
		out.Unread = append(out.Unread, r.Unread...)
	}
	out.sort()
	return out
}

func (r *Result) sort() {
	slices.SortStableFunc(r.Findings, compareFindings)
	slices.SortStableFunc(r.Skipped, func(a, b Skipped) int {
		return cmp.Or(strings.Compare(a.Check, b.Check), strings.Compare(a.Reason, b.Reason))
	})
}

func subjectOrder(s state.Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, _ := netip.ParsePrefix(s.CIDR)
	return p
}
