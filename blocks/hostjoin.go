package blocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// agentPreferred is how long an agent's view takes precedence over a newer listing of
// routes.
const agentPreferred = 10 * time.Minute

// ClockSkew is the largest assumed difference between the clocks of two machines.
const ClockSkew = time.Minute

// viewLife is the maximum age of a host view that still describes its node's current state.
const viewLife = 10 * time.Minute

// Expired reports whether a view is too old, at now, to prove anything.
func (v *HostView) Expired(now time.Time) bool { return now.Sub(v.TakenAt) > viewLife }

// Future reports whether a view's time is later than the API server's now. Such a view may
// be older than it claims.
func (v *HostView) Future(now time.Time) bool { return v.TakenAt.After(now.Add(ClockSkew)) }

// JoinHostReadings merges host views from several sources. If two views are of one machine, the
// newer one counts, whichever nodes they name. The same applies to two views of one node if either
// does not identify its machine. The other view becomes a gap.
//
// Addresses in use must stay visible, so a view does not replace another if it
//
//   - is a plain listing of routes, and the other is an agent's view;
//   - lies in the future;
//   - is doubtful, unless the other is, too;
//   - is not authenticated, unless the other is not either and both name the same node.
//
// Of several views of a node, the best source of routes comes first.
func JoinHostReadings(readings ...HostReading) HostReading {
	out := HostReading{Asked: true}
	var all []HostView
	for _, r := range readings {
		all = append(all, r.Views...)
		out.Gaps = append(out.Gaps, r.Gaps...)
		if r.Until.After(out.Until) {
			out.Until = r.Until
		}
	}
	future := func(v *HostView) bool { return !out.Until.IsZero() && v.Future(out.Until) }
	// Agents report more than listings, whose times are only assumed.
	agent := func(v *HostView) int {
		if v.RulesKnown && !v.TakenAt.Before(out.Until.Add(-agentPreferred)) && !future(v) {
			return 0
		}
		return 1
	}
	doubtful := func(v *HostView) int { return min(1, len(v.Doubt)) }
	slices.SortStableFunc(all, func(a, b HostView) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(doubtful(&a), doubtful(&b)), cmp.Compare(agent(&a), agent(&b)), b.TakenAt.Compare(a.TakenAt), cmp.Compare(a.Source, b.Source))
	})
	// stands reports whether the view at i replaces the one at j.
	stands := func(i, j int) bool {
		a, b := &all[i], &all[j]
		switch {
		case i == j || future(a) || doubtful(a) > doubtful(b) || b.Authenticated && !a.Authenticated || b.RulesKnown && !a.RulesKnown:
			return false
		case a.Machine != "" && a.Machine == b.Machine:
			newer := cmp.Or(a.TakenAt.Compare(b.TakenAt), cmp.Compare(j, i)) > 0
			return newer && (a.Node == b.Node || a.Authenticated)
		}
		return i < j && a.Node == b.Node && (a.Machine == "" || b.Machine == "")
	}
	// Only views of the same node or machine can replace each other.
	groups := map[[2]string][]int{}
	for i := range all {
		groups[[2]string{"node", all[i].Node}] = append(groups[[2]string{"node", all[i].Node}], i)
		if m := all[i].Machine; m != "" {
			groups[[2]string{"machine", m}] = append(groups[[2]string{"machine", m}], i)
		}
	}
	for j, v := range all {
		others := slices.Concat(groups[[2]string{"node", v.Node}], groups[[2]string{"machine", v.Machine}])
		k := slices.IndexFunc(others, func(i int) bool { return stands(i, j) })
		if k < 0 {
			out.Views = append(out.Views, v)
			continue
		}
		out.Gaps = append(out.Gaps, HostGap{Node: v.Node, Source: v.Source, Reason: fmt.Sprintf(
			"ignored for the newer or more complete view in %s: this one was taken at %s", all[others[k]].Source, v.TakenAt.UTC().Format(time.RFC3339))})
	}
	slices.SortStableFunc(out.Gaps, CompareHostGaps)
	out.Gaps = slices.Compact(out.Gaps)
	return out
}
