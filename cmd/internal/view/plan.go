package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// PlanFormats returns the formats of a saved plan.
func PlanFormats() Formats[*repair.Plan] {
	people := tables((*printer).plan, "the plan, for people; similar steps and refusals are collapsed", "the table with every step, its evidence and guards, and every refusal")
	return planFormats(people, `the whole plan, for "repair apply",`, stepIDs, "plan")
}

// NewPlanFormats returns the formats of a new plan. page writes it as HTML.
func NewPlanFormats(page func(io.Writer, *repair.Plan, Options) error) Formats[*repair.Plan] {
	return append(PlanFormats(), Format[*repair.Plan]{Name: "html", Help: "a page with the report and the changes that the plan would make", Write: page})
}

// ResultFormats returns the formats of the result of a plan or an undo. They have the same
// names as [PlanFormats].
func ResultFormats() Formats[*repair.Result] {
	people := tables((*printer).result, "the outcome of each step, for people; long lists are cut", "the table with every step")
	return planFormats(people, "the outcome of each step", outcomeIDs, "result")
}

// planFormats returns the formats of a plan or a result. data describes the JSON and YAML
// in the help.
func planFormats[T any](people Formats[T], data string, ids func(T) []string, document string) Formats[T] {
	return slices.Concat(people, DataFormats[T](data), Formats[T]{
		{Name: "name", Help: "the IDs of the steps, one per line", Write: asLines(ids)},
		paths[T]("the document"), tickets[T](document),
	})
}

func stepIDs(plan *repair.Plan) (out []string) {
	for i := range plan.Steps {
		out = append(out, plan.Steps[i].ID)
	}
	return out
}

// planShown limits listed alike steps, and names. refusedShown limits listed refusals for
// one reason.
const planShown, refusedShown = 10, 3

// plan writes a plan for people, in the order of their decisions: the steps, their effect,
// the refusals, and the manual steps.
func (p *printer) plan(plan *repair.Plan) {
	p.planHead(plan)
	p.steps(plan)
	p.changedPools(plan)
	p.planMaps(plan)
	p.strict(plan.Strict)
	p.refused(plan)
	p.manual(plan.Manual)
	p.next()
}

func (p *printer) planHead(plan *repair.Plan) {
	c := plan.Cluster
	head := spans("Plan for cluster "+p.guid(c.GUID), prefixed("Calico ", c.CalicoVersion), prefixed("from ", p.Source),
		"made "+cmp.Or(plan.CreatedAt.String(), "at an unknown time"), "grace "+plan.Grace.String())
	if s := plan.Request.AfterRestore; s > 0 {
		head = append(head, spans(fmt.Sprintf("stage %d after a restore: %s", s, s))...)
	}
	if !plan.Complete {
		head = append(head, completeness(false, nil))
	}
	p.flow(head...)
	p.wrapAll("Note: ", 6, plan.Warnings)
	if len(plan.Gaps) > 0 {
		p.blank()
		p.line(span{"NOT SEEN", styleWarning})
		p.wrapAll("  ", 4, plan.Gaps)
	}
}

func (p *printer) steps(plan *repair.Plan) {
	if len(plan.Steps) == 0 {
		p.section("STEPS: none")
		return
	}
	p.section(fmt.Sprintf("STEPS (%d)", len(plan.Steps)))
	number := 0
	for _, alike := range Runs(plan.Steps, func(a, b *repair.Step) bool { return a.Kind == b.Kind }) {
		some, rest := cut(alike, p.atMost(planShown))
		for i := range some {
			p.step(number+i+1, &some[i], plan)
		}
		number += len(alike)
		p.rest(rest, string(alike[0].Kind))
	}
}

func (p *printer) step(number int, s *repair.Step, plan *repair.Plan) {
	p.wrap(fmt.Sprintf("%3d. ", number), 5, string(s.Kind)+" "+TargetText(s.Target))
	p.wrap("     ", 5, s.Because)
	if s.TwoObservations {
		p.wrap("     ", 5, dueTwice(plan, "needs a second observation, not before %s"))
	}
	if !p.wide {
		return
	}
	for _, e := range s.Evidence {
		p.wrap("     - ", 9, e.Name+": "+e.Value)
	}
	for _, g := range s.Guards {
		p.wrap("     only if ", 14, g.Name+" is "+g.Value)
	}
}

// dueTwice describes when a step that needs two observations is due, with a format for the
// time, or that it needs --wait.
func dueTwice(plan *repair.Plan, format string) string {
	if why := plan.Unobserved(); why != "" {
		return "needs a second observation: apply with --wait, because " + why
	}
	return fmt.Sprintf(format, plan.Due())
}

// TargetText names the target of a step.
func TargetText(s state.Subject) string {
	switch s.Kind {
	case state.KindConfig:
		return "IPAM configuration"
	case state.KindCluster:
		return "the cluster"
	}
	id := s.ID()
	if s.Node != "" && s.Kind != state.KindAffinity && s.Kind != state.KindNode {
		return id + " (" + s.Node + ")"
	}
	return id
}

// poolChange is a pool before and after the steps.
type poolChange struct{ Before, After *audit.PoolReport }

// changedPools returns the pools in a plan's preview; none for a plan without steps.
func changedPools(plan *repair.Plan) (out []poolChange) {
	for i := range plan.Before {
		named := func(p audit.PoolReport) bool { return p.Name == plan.Before[i].Name }
		if at := slices.IndexFunc(plan.After, named); at >= 0 && len(plan.Steps) > 0 {
			out = append(out, poolChange{&plan.Before[i], &plan.After[at]})
		}
	}
	return out
}

func (p *printer) changedPools(plan *repair.Plan) {
	if len(plan.Steps) == 0 || len(plan.Before) == 0 {
		return
	}
	arrow := func(before, after string) string {
		if before == after {
			return before
		}
		return before + " → " + after
	}
	g := &Table{Columns: []Heading{{Title: "POOL"}, {"FREE BLOCKS", true}, {"AVAILABLE ADDRESSES", true}}}
	for _, c := range changedPools(plan) {
		g.add(poolLabel(c.Before), arrow(Short(c.Before.Blocks.Free), Short(c.After.Blocks.Free)),
			arrow(Short(c.Before.Addresses.Available), Short(c.After.Addresses.Available)))
	}
	p.blank()
	p.grid(g, 0)
}

func (p *printer) strict(s *repair.StrictPreview) {
	if s == nil {
		return
	}
	p.section(fmt.Sprintf("STRICT AFFINITY: %t → %t", s.From, s.To))
	for _, line := range strictLines(s) {
		p.wrap("  ", 4, line.Text+CutNames(line.Names, p.atMost(planShown), "… %d more"))
	}
}

// strictLine is a fact about strict affinity, ending in names.
type strictLine struct {
	Text  string
	Names []string
}

// strictLines describes the effects of a change of strict affinity, one fact a line.
func strictLines(s *repair.StrictPreview) []strictLine {
	out := []strictLine{{Text: "No address is borrowed now."}}
	if n := len(s.Borrowers); n > 0 {
		out[0] = strictLine{fmt.Sprintf("Addresses that stay borrowed until their pods restart (%d): ", n), s.Borrowers}
	}
	if n := len(s.Starve); n > 0 {
		out = append(out, strictLine{fmt.Sprintf("Nodes whose next pod gets no address (%d): ", n), s.Starve})
	}
	if n := len(s.MayStarve); n > 0 {
		out = append(out, strictLine{fmt.Sprintf("More nodes whose next pod gets no address if others claim the last blocks first (%d): ", n), s.MayStarve})
	}
	if s.Unusable > 0 {
		out = append(out, strictLine{Text: fmt.Sprintf("Free addresses that become unusable, because their blocks have no node: %d.", s.Unusable)})
	}
	if len(s.Windows) > 0 {
		out = append(out, strictLine{"Windows nodes need strict affinity: ", s.Windows})
	}
	return out
}

// refusalTexts describes the codes of refusals.
var refusalTexts = map[repair.RefusalCode]string{
	repair.RefusedLastBlock:     "it is its node's last block",
	repair.RefusedYoung:         "the state has not lasted long enough",
	repair.RefusedUnknownAge:    "the age of the state is unknown",
	repair.RefusedInUse:         "it is in use",
	repair.RefusedHostView:      "a host view contradicts it",
	repair.RefusedLocked:        "the datastore is locked",
	repair.RefusedCorrupt:       "the object contradicts itself",
	repair.RefusedSpecial:       "calico-audit never changes it",
	repair.RefusedNotRead:       "a resource that it depends on could not be read",
	repair.RefusedVersion:       "the cluster's Calico is newer than this program supports",
	repair.RefusedRejected:      "Calico would reject the result",
	repair.RefusedConflict:      "objects contradict each other",
	repair.RefusedHeals:         "Calico repairs it by itself",
	repair.RefusedLimit:         "cut off by --max-steps",
	repair.RefusedMarked:        "a deletion was started, and must be finished first",
	repair.RefusedMachineMayRun: "its node is not Ready or no longer exists, and its machine may still run",
	repair.RefusedNoEvidence:    "no host view shows whether its node uses the address",
	repair.RefusedUnconfirmed:   "two readings do not agree",
	repair.RefusedNoAuto:        "no node would claim it again: automatic blocks are off",
	repair.RefusedUnpinned:      "the object to write cannot be identified",
	repair.RefusedNowhere:       "no known node could start the pod without borrowing",
	repair.RefusedNotYet:        "another operation must end first",
	repair.RefusedConsent:       "it needs a consent flag that was not given",
	repair.RefusedNothing:       "nothing to do",
	repair.RefusedUnknownOwner:  "its owner is unknown",
}

// refusals groups a plan's refusals by kind of step and reason, the largest group of each
// kind first.
func refusals(plan *repair.Plan) [][]*repair.Refusal {
	type reason struct {
		kind repair.Kind
		code repair.RefusalCode
	}
	out := groupBy(plan.Refused, func(r *repair.Refusal) reason { return reason{r.Kind, r.Code} })
	slices.SortStableFunc(out, func(a, b []*repair.Refusal) int {
		return cmp.Or(cmp.Compare(a[0].Kind, b[0].Kind), len(b)-len(a))
	})
	return out
}

// refusalTitle is the heading of a group of [refusals].
func refusalTitle(g []*repair.Refusal) string {
	return fmt.Sprintf("%s (%d): %s", g[0].Kind, len(g), cmp.Or(refusalTexts[g[0].Code], string(g[0].Code)))
}

func (p *printer) refused(plan *repair.Plan) {
	if len(plan.Refused) == 0 {
		return
	}
	p.section(fmt.Sprintf("NOT TOUCHED (%d)", len(plan.Refused)))
	for _, g := range refusals(plan) {
		p.wrap("  ", 4, refusalTitle(g))
		some, rest := cut(g, p.atMost(refusedShown))
		for _, r := range some {
			p.wrap("    ", 6, TargetText(r.Target)+": "+r.Reason)
		}
		if rest > 0 {
			p.wrap("    … ", 6, fmt.Sprintf("and %d more (-o wide lists all)", rest))
		}
	}
}

// manual writes the manual steps, in order. If several steps share a risk, it prints the risk once.
func (p *printer) manual(manual []repair.Manual) {
	if len(manual) == 0 {
		return
	}
	p.section(fmt.Sprintf("BY HAND (%d), in this order; steps with the same number may run in any order", len(manual)))
	for _, all := range Runs(manual, func(a, b *repair.Manual) bool { return a.Order == b.Order }) {
		some, rest := cut(all, p.atMost(planShown))
		risk := ""
		for i := range some {
			m := &some[i]
			p.wrap(fmt.Sprintf("%3d. ", m.Order), 5, manualText(m))
			p.wrap("     ", 5, m.Because)
			if m.Risk != "" && m.Risk != risk {
				p.wrap("     risk: ", 11, m.Risk)
			}
			if risk = m.Risk; m.Command != "" {
				p.say("     $ " + p.Command(m.Command))
			}
			for _, c := range m.Then {
				p.say("     then $ " + p.Command(c))
			}
		}
		p.rest(rest, fmt.Sprint("number ", all[0].Order))
	}
}

// manualText returns the action, after the name of its target, unless the action names the target.
func manualText(m *repair.Manual) string {
	id := m.Target.ID()
	if id == "" || m.Target.Kind == state.KindIP || m.Target.Kind == state.KindCluster || strings.Contains(m.Action, id) {
		return m.Action
	}
	if m.Target.Kind == state.KindNode {
		id = "node " + id
	}
	return id + ": " + m.Action
}

func (p *printer) next() {
	for _, n := range p.Next {
		p.blank()
		if n.Text != "" {
			p.wrap("", 0, n.Text)
		}
		if n.Command != "" {
			p.say("  " + n.Command)
		}
	}
}
