package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/repair"
)

// liveState is the state of a live page.
type liveState struct {
	Now     string // by the clock of the server
	Refresh int    // seconds
}

// planContent is a plan with its next steps and maps.
type planContent struct {
	*repair.Plan
	// Manual are the plan's manual steps, with commands that work when pasted.
	Manual []repair.Manual
	Next   []view.NextStep
	Maps   []mapChange
}

// mapChange holds the maps of a pool before and after.
type mapChange struct {
	Name string
	// ID is the index of the first of the two maps in the page's data.
	ID            int
	Before, After Drawing
	Legends       []Legend
}

func newContent(r *audit.Report, o Options) (*content, error) {
	c := &content{
		head:   newHead("calico-audit: "+verdictText(r)+", cluster "+cmp.Or(r.Cluster.GUID, "unknown"), pageStyle, pageScript, o.Live),
		Report: r, Program: o.Program, NoMap: blockmap.Missing(r), Verdict: newVerdict(r, o), Findings: newGroups(r, o),
	}
	if o.Live {
		c.Live = &liveState{phrase.Time(o.Now), int(cmp.Or(o.Refresh, DefaultRefresh).Seconds())}
	}
	for i := range r.Pools {
		c.Pools = append(c.Pools, newPoolBars(r, &r.Pools[i]))
	}
	c.Secondary = newSecondaryPools(r)
	if c.NoMap == "" {
		c.Maps = newPoolMaps(blockmap.New(r, o.Plan), o.Plan != nil, r.Usage)
	}
	if o.Plan != nil {
		c.Plan = newPlanContent(r, o)
	}
	c.Mode = firstMode(c.Maps, o)
	var err error
	c.Data, err = embedAll(r, o, c)
	return c, err
}

// firstMode returns the initial mode of the maps: the changes of a plan, else the owners if
// there are enough colours, else the fill levels.
func firstMode(maps []poolMap, o Options) string {
	few := len(maps) > 0
	for _, m := range maps {
		few = few && len(m.Drawing.pool.Owners) <= blockmap.Colours
	}
	switch {
	case o.Plan != nil && len(o.Plan.Steps) > 0:
		return "plan"
	case few:
		return "owner"
	}
	return "fill"
}

func newPlanContent(r *audit.Report, o Options) *planContent {
	c := &planContent{Plan: o.Plan, Manual: slices.Clone(o.Plan.Manual), Next: o.Next}
	for i := range c.Manual {
		m := &c.Manual[i]
		m.Command, m.Then = o.Command(m.Command), o.commands(m.Then)
	}
	for _, m := range blockmap.OfPlan(r, o.Plan) {
		if !m.Before.Sparse && !m.After.Sparse {
			before, after := Draw(m.Before, true, nil), Draw(m.After, false, nil)
			c.Maps = append(c.Maps, mapChange{m.Before.Name, 2 * len(c.Maps), before, after, legendsOfBoth(&before, &after)})
		}
	}
	if len(c.Steps) == 0 || o.Plan.Unapplicable() != "" {
		return c
	}
	// The reader does not have the files of the page's author, but the page contains the
	// plan.
	next := view.NextStep{Text: "Nothing was written. Save the plan as plan.json (button at the end of this page), and apply it with:", Command: o.Program + " repair apply plan.json"}
	if slices.ContainsFunc(c.Steps, func(s repair.Step) bool { return s.TwoObservations }) {
		next.Text = strings.Replace(next.Text, "and apply it with:", "and apply it with --wait, because some steps need a second observation:", 1)
		next.Command += " --wait"
	}
	c.Next = []view.NextStep{next}
	return c
}

// verdict is the top of the page.
type verdict struct {
	// Second is true if a plan precedes it.
	Second bool
	// Heading is empty if Counts suffice.
	Heading   string
	Diagnoses []diagnosis
	// Lead is the most severe finding without a diagnosis, or an explanation if there are
	// no findings.
	Lead string
	// Partial warns that there may be more findings; empty if everything was read.
	Partial string
	Worst   string // CSS class of the highest severity
	Counts  []view.SeverityCount
	Facts   []fact
	// Taken is the time of the data. Incomplete is true if there are gaps.
	Taken      audit.Time
	Incomplete bool
}

type fact struct{ Name, Value, Class string }

// diagnosis is a diagnosis for display.
type diagnosis struct {
	*audit.Diagnosis
	Remedies []remedies.Remedy
	Explains []explained
}

// explained counts the findings of one check and severity in a diagnosis.
type explained struct {
	Check    string
	Severity state.Severity
	Count    int
}

func newDiagnosis(r *audit.Report, d *audit.Diagnosis, o Options) diagnosis {
	out := diagnosis{Diagnosis: d}
	for _, m := range d.Remedies {
		m.Commands = o.commands(m.Commands)
		out.Remedies = append(out.Remedies, m)
	}
	explains := view.Explained(*d)
	for _, g := range view.Groups(r.Findings) {
		n := 0
		for i := range g {
			if explains[g[i].Fingerprint] {
				n++
			}
		}
		if n > 0 {
			out.Explains = append(out.Explains, explained{g[0].Check, g[0].Severity, n})
		}
	}
	return out
}

// verdictText summarises the findings in a few words.
func verdictText(r *audit.Report) string {
	switch counted := view.SeverityCounts(r.Summary.FindingCounts); {
	case counted != "":
		return counted
	case r.Summary.Pools == 0 && r.Summary.Blocks == 0:
		return "nothing to audit"
	case !r.Complete:
		return "no findings in the parts that could be read"
	}
	return "no findings"
}

func newVerdict(r *audit.Report, o Options) verdict {
	c, s := r.Cluster, r.Summary
	v := verdict{Second: o.Plan != nil, Taken: c.TakenAt, Incomplete: !r.Complete, Counts: view.CountSeverities(s.FindingCounts)}
	if text := verdictText(r); len(v.Counts) == 0 {
		v.Heading = strings.ToUpper(text[:1]) + text[1:]
	}
	for i := range r.Diagnoses {
		v.Diagnoses = append(v.Diagnoses, newDiagnosis(r, &r.Diagnoses[i], o))
	}
	switch {
	case len(r.Findings) > 0 && view.Explained(r.Diagnoses...)[r.Findings[0].Fingerprint]:
		v.Worst = "sev-" + r.Findings[0].Severity.String()
	case len(r.Findings) > 0:
		v.Lead, v.Worst = view.Message(&r.Findings[0]), "sev-"+r.Findings[0].Severity.String()
	case s.Pools == 0 && s.Blocks == 0 && !slices.ContainsFunc(r.Gaps, func(g blocks.Gap) bool { return g.Resource == blocks.Blocks && g.Whole() }):
		v.Lead = view.NothingSeen
	case r.Complete:
		v.Lead, v.Worst = "All checks that ran passed.", "sev-none"
	default:
		v.Lead = "Parts of the cluster could not be read, so there may be problems: see the section Not seen."
	}
	if gaps := blocks.Untolerated(r.Gaps); !r.Complete && len(r.Findings) > 0 {
		v.Partial = "parts of the cluster were not read, so there may be more findings."
		if len(gaps) == 1 {
			v.Partial = gaps[0].String() + ", so there may be more findings."
		}
	}
	muted := ""
	if s.Muted > 0 {
		muted = phrase.Plural(s.Muted, "finding")
	}
	for _, f := range []fact{
		{"Cluster", cmp.Or(c.GUID, "GUID unknown"), ""}, {"Calico", c.CalicoVersion, ""}, {"Read from", cmp.Or(o.Source, c.Datastore), ""},
		{"API group", c.APIGroup, ""}, {"Assumed", strings.Join(c.Assumes, " "), ""}, {"Seen", view.Seen(r), ""}, {"Muted", muted, ""}, {"Scope", scopeText(r.Scope), "warn"}, {"Tightest pool", tightestPool(r), ""},
		{"Commands", o.elsewhere(len(r.Findings) > 0 || o.Plan != nil), ""},
	} {
		if f.Value != "" {
			v.Facts = append(v.Facts, f)
		}
	}
	return v
}

// scopeText describes the filters of a report; "" without any.
func scopeText(s *audit.Scope) string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, x := range []struct {
		what  string
		names []string
	}{{"checks", s.Checks}, {"pools", s.Pools}, {"nodes", s.Nodes}} {
		switch n := len(x.names); {
		case n > view.MapNames:
			parts = append(parts, fmt.Sprintf("%d %s", n, x.what))
		case n > 0:
			parts = append(parts, x.what+" "+strings.Join(x.names, ", "))
		}
	}
	return "limited to " + strings.Join(parts, "; ")
}

// tightestPool returns the name and numbers of the pool with the smallest share of
// claimable and releasable blocks, preferring pools that serve nodes. It returns "" if
// these numbers are unknown.
func tightestPool(r *audit.Report) string {
	var worst *audit.PoolReport
	share := func(p *audit.PoolReport) float64 {
		return p.Blocks.Allocatable.Add(p.Blocks.Releasable).Share(p.Blocks.Capacity)
	}
	for _, idle := range []bool{false, true} {
		for i := range r.Pools {
			p := &r.Pools[i]
			if !view.LeftKnown(r, p) {
				return ""
			}
			if !p.Disabled && p.Blocks.Needed.IsZero() == idle && (worst == nil || share(p) < share(worst)) {
				worst = p
			}
		}
		if worst != nil {
			b, a := worst.Blocks, worst.Addresses
			return fmt.Sprintf("%s: %s of %s blocks free, %s of %s addresses available", worst.Name,
				view.Short(b.Free), view.Short(b.Capacity), view.Short(a.Available), view.Short(a.Capacity))
		}
	}
	return ""
}
