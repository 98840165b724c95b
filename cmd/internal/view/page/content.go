package page

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// content is what the page's template is filled with.
type content struct {
	Report        *audit.Report
	Program       string
	Policy        string
	Style, Script template.HTML // ours, written as they are
	Title         string
	Live          *liveState
	Verdict       verdict
	Pools         []poolBars
	Maps          []poolMap
	// NoMap says why there is no map; empty if there is one.
	NoMap    string
	Findings []group
	Plan     *planContent
	Data     []template.HTML
}

// liveState is what a live page knows of its state's time.
type liveState struct {
	Now     string // by the clock of who made the page
	Refresh int    // seconds
}

// planContent is a plan, how to go on with it, and the pools that it changes.
type planContent struct {
	*repair.Plan
	Next []view.NextStep
	Maps []mapChange
}

// mapChange is a pool's picture before and after.
type mapChange struct {
	Name          string
	Before, After Drawing
}

func newContent(r *audit.Report, o Options) (*content, error) {
	c := &content{
		Report: r, Program: o.Program, Policy: policy(o.Live), NoMap: view.NoMap(r), Verdict: newVerdict(r, o), Findings: newGroups(r, o),
		Style:  template.HTML("<style>" + pageStyle + "</style>"),    //nolint:gosec // our own
		Script: template.HTML("<script>" + pageScript + "</script>"), //nolint:gosec // our own
		Title:  "calico-audit: " + verdictText(r) + ", cluster " + cmp.Or(r.Cluster.GUID, "not known"),
	}
	if o.Live {
		c.Live = &liveState{state.FormatTime(o.Now), int(cmp.Or(o.Refresh, DefaultRefresh).Seconds())}
	}
	for i := range r.Pools {
		c.Pools = append(c.Pools, newPoolBars(r, &r.Pools[i]))
	}
	if c.NoMap == "" {
		c.Maps = newPoolMaps(view.NewBlockMap(r, o.Plan), o.Plan != nil, r.Usage)
	}
	if o.Plan != nil {
		c.Plan = &planContent{Plan: o.Plan, Next: o.Next}
		for _, m := range view.PlanMaps(r, o.Plan) {
			if !m.Before.Sparse && !m.After.Sparse {
				c.Plan.Maps = append(c.Plan.Maps, mapChange{m.Before.Name, Draw(m.Before, true, nil), Draw(m.After, false, nil)})
			}
		}
	}
	var err error
	c.Data, err = embedAll(r, o, c.Maps)
	return c, err
}

// verdict is the head of the page.
type verdict struct {
	// Heading is empty where Counts say it all.
	Heading string
	// Lead is the worst finding, or what no finding means.
	Lead   string
	Worst  string // class of the worst severity
	Counts []view.SeverityCount
	Facts  []fact
	// Taken is when the data were read; Incomplete says that something was not.
	Taken      audit.Time
	Incomplete bool
}

type fact struct{ Name, Value, Class string }

// verdictText says in a few words what was found.
func verdictText(r *audit.Report) string {
	switch counted := view.SeverityCounts(r.Summary); {
	case counted != "":
		return counted
	case r.Summary.Pools == 0 && r.Summary.Blocks == 0:
		return "nothing to audit"
	case !r.Complete:
		return "no findings in what could be read"
	}
	return "no findings"
}

func newVerdict(r *audit.Report, o Options) verdict {
	c, s := r.Cluster, r.Summary
	v := verdict{Taken: c.TakenAt, Incomplete: !r.Complete, Counts: view.CountSeverities(s)}
	if text := verdictText(r); len(v.Counts) == 0 {
		v.Heading = strings.ToUpper(text[:1]) + text[1:]
	}
	switch {
	case len(r.Findings) > 0:
		v.Lead, v.Worst = view.Message(&r.Findings[0]), "sev-"+r.Findings[0].Severity.String()
	case s.Pools == 0 && s.Blocks == 0:
		v.Lead = view.NothingSeen
	case r.Complete:
		v.Lead, v.Worst = "Every check that ran found what it expects.", "sev-none"
	default:
		v.Lead = "Something could not be read, so this is not an all-clear: see what was not seen."
	}
	muted := ""
	if s.Muted > 0 {
		muted = view.Plural(s.Muted, "finding", "findings")
	}
	for _, f := range []fact{
		{"Cluster", cmp.Or(c.GUID, "GUID not known"), ""}, {"Calico", c.CalicoVersion, ""}, {"Read from", cmp.Or(o.Source, c.Datastore), ""},
		{"API group", c.APIGroup, ""}, {"Seen", view.Seen(s), ""}, {"Muted", muted, ""}, {"Scope", scopeText(r.Scope), "warn"}, {"Tightest pool", tightestPool(r), ""},
	} {
		if f.Value != "" {
			v.Facts = append(v.Facts, f)
		}
	}
	return v
}

// scopeText says what a report was narrowed to; empty for a whole one.
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
	return "narrowed to " + strings.Join(parts, "; ")
}

// tightestPool names the pool that is the nearest to having no block left for the
// nodes that it has to serve, with its numbers; of none that serves nodes, another.
func tightestPool(r *audit.Report) string {
	var worst *audit.PoolReport
	room := func(p *audit.PoolReport) float64 {
		return p.Blocks.Allocatable.Add(p.Blocks.Reclaimable).Share(p.Blocks.Capacity)
	}
	for _, idle := range []bool{false, true} {
		for i := range r.Pools {
			p := &r.Pools[i]
			if !p.Disabled && p.Blocks.Needed.IsZero() == idle && (worst == nil || room(p) < room(worst)) {
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
