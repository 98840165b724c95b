package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/repair"
)

// refusalTexts say in a few words what a refusal's code means.
var refusalTexts = map[repair.RefusalCode]string{
	repair.RefusedLastBlock:     "its node would keep no block",
	repair.RefusedYoung:         "the state has not held long enough",
	repair.RefusedUnknownAge:    "nothing tells how long the state has held",
	repair.RefusedInUse:         "something uses it",
	repair.RefusedHostView:      "a node's kernel contradicts",
	repair.RefusedLocked:        "the datastore is locked",
	repair.RefusedCorrupt:       "the object contradicts itself",
	repair.RefusedSpecial:       "it is not for this program to touch",
	repair.RefusedNotRead:       "something that the verdict needs could not be read",
	repair.RefusedVersion:       "the cluster's Calico is newer than this program knows",
	repair.RefusedRejected:      "Calico would reject the result",
	repair.RefusedConflict:      "objects contradict one another",
	repair.RefusedHeals:         "Calico heals it by itself",
	repair.RefusedLimit:         "cut off by --max-steps",
	repair.RefusedMarked:        "a deletion was begun, which has to be finished first",
	repair.RefusedMachineMayRun: "its node does not answer, and its machine may run on",
	repair.RefusedNoEvidence:    "no node was asked whether it uses the address",
	repair.RefusedUnconfirmed:   "two readings do not agree",
	repair.RefusedUnpinned:      "nothing identifies what would be written",
	repair.RefusedUnknownOwner:  "who owns it is not known",
}

// refusedFor are the refusals of one kind of step for one reason.
type refusedFor struct {
	kind repair.Kind
	code repair.RefusalCode
	all  []*repair.Refusal
}

// title says what is refused and why.
func (r refusedFor) title() string {
	text := refusalTexts[r.code]
	if text == "" {
		text = string(r.code)
	}
	return fmt.Sprintf("%s (%d): %s", r.kind, len(r.all), text)
}

// refusals groups a plan's refusals, the largest group of each kind first.
func refusals(plan *repair.Plan) []refusedFor {
	var out []refusedFor
	for i := range plan.Refused {
		r := &plan.Refused[i]
		at := slices.IndexFunc(out, func(g refusedFor) bool { return g.kind == r.Kind && g.code == r.Code })
		if at < 0 {
			at = len(out)
			out = append(out, refusedFor{kind: r.Kind, code: r.Code})
		}
		out[at].all = append(out[at].all, r)
	}
	slices.SortStableFunc(out, func(a, b refusedFor) int {
		if c := strings.Compare(string(a.kind), string(b.kind)); c != 0 {
			return c
		}
		return len(b.all) - len(a.all)
	})
	return out
}

// refusedShown is how many refusals for one reason the table writes out.
const refusedShown = 3

// refused writes what is not touched, grouped, with counts and reasons.
func (t *planTable) refused(p *page, plan *repair.Plan) {
	if len(plan.Refused) == 0 {
		return
	}
	p.blank()
	p.line(span{text: fmt.Sprintf("NOT TOUCHED (%d)", len(plan.Refused))})
	for _, g := range refusals(plan) {
		p.wrap("  ", 4, g.title())
		shown := g.all
		if !t.wide && len(shown) > refusedShown+1 {
			shown = shown[:refusedShown]
		}
		for _, r := range shown {
			p.wrap("    ", 6, targetText(r.Target)+": "+r.Reason)
		}
		if rest := len(g.all) - len(shown); rest > 0 {
			p.wrap("    … ", 6, fmt.Sprintf("and %d more (-o wide shows each)", rest))
		}
	}
}
