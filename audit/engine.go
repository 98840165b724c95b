package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Result holds the findings of one run of checks.
type Result struct {
	Findings []Finding
	// Skipped lists checks that were not run, and parts of verdicts that were left out.
	Skipped []Skipped
	// Inconclusive are the IDs of checks without a complete verdict, including checks of
	// host views if there are no host views. Their findings are valid, but they may have
	// missed problems.
	Inconclusive []string
	// Unread lists the resources that a second reading could not read.
	Unread []blocks.Gap

	live bool
	// viewed holds the nodes with host views. A value is true if all views of the node are
	// from this reading.
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

// Join merges several results of the same State.
func Join(results ...*Result) *Result {
	out := &Result{viewed: map[string]bool{}}
	for _, r := range results {
		maps.Copy(out.viewed, r.viewed) // equal in all results of one State
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
