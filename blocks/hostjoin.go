package blocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// agentPreferred is for how long an agent's view counts before a newer listing of
// routes.
const agentPreferred = 10 * time.Minute

// ClockSkew is how far the clocks of two machines may be apart.
const ClockSkew = time.Minute

// viewLife is how old a host view may be and still say how its node stands.
const viewLife = 10 * time.Minute

// Expired reports whether a view is too old at a time to prove anything.
func (v *HostView) Expired(now time.Time) bool { return now.Sub(v.TakenAt) > viewLife }

// Future reports whether a view says that it was taken after the API server's time, so
// that it may be older than it says.
func (v *HostView) Future(now time.Time) bool { return v.TakenAt.After(now.Add(ClockSkew)) }

// JoinHostReadings puts host views from several places together. Of two of one
// machine the newer counts, whatever nodes they name, and of two of one node where one
// does not say of which machine it is; the other becomes a gap. What one view shows in
// use no other makes forgotten that
//
//   - lists routes alone;
//   - lies in the future;
//   - is doubtful, unless the first is, too;
//   - is not authenticated, unless the first is not either and they name one node.
//
// Of several views of a node the one to ask for its routes comes first.
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
	// An agent tells more than a listing, whose time is only assumed.
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
	// stands reports whether the view at i makes the one at j superfluous.
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
	// Only those of one node or of one machine are to be compared.
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
			"left out for the newer view in %s, or the one that tells more: this one was taken at %s", all[others[k]].Source, v.TakenAt.UTC().Format(time.RFC3339))})
	}
	slices.SortStableFunc(out.Gaps, CompareHostGaps)
	out.Gaps = slices.Compact(out.Gaps)
	return out
}
