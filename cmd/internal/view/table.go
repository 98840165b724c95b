package view

import (
	"fmt"
	"io"
	"time"

	"github.com/calico-audit/calico-audit/audit"
)

// table is the overview for people, and with wide set the same in full.
type table struct {
	Options
	wide bool
}

func newTable(_ string, o Options) (Printer, error) { return &table{o.defaults(), false}, nil }

func (o Options) defaults() Options {
	if o.Program == "" {
		o.Program = "calico-audit"
	}
	if o.Why == nil {
		o.Why = documentedWhy
	}
	return o
}

// documentedWhy returns the first sentence of a check's own documentation.
func documentedWhy(check string) string {
	c, err := audit.All.ByID(check)
	if err != nil {
		return "" // a report of another version may name a check this one does not have
	}
	return firstSentence(c.Why)
}

// Print writes the report.
func (t *table) Print(w io.Writer, r *audit.Report) error {
	p := newPage(t.Options)
	t.head(p, r)
	t.pools(p, r)
	if drawable(r) {
		size := mapShort
		if t.wide {
			size = mapWhole
		}
		t.drawMap(p, r, size)
	}
	if t.wide {
		t.nodes(p, r)
	}
	t.findings(p, r)
	t.notSeen(p, r)
	t.hosts(p, r)
	t.muted(p, r)
	t.foot(p, r)
	return p.writeTo(w)
}

// head says which cluster this is, and how old and how complete the data are.
func (t *table) head(p *page, r *audit.Report) {
	c := r.Cluster
	var spans []span
	add := func(s string) {
		if s != "" {
			spans = append(spans, span{text: s})
		}
	}
	guid := c.GUID
	if len(guid) > 12 && !t.wide {
		guid = guid[:8]
	}
	if guid == "" {
		guid = "(GUID not known)"
	}
	add("Cluster " + guid)
	if c.CalicoVersion != "" {
		add("Calico " + c.CalicoVersion)
	}
	if t.Source != "" {
		add("from " + t.Source)
	} else {
		add("from " + c.Datastore)
	}
	add(c.APIGroup)
	add(t.taken(c.TakenAt.Time))
	if r.Complete {
		add("complete")
	} else {
		spans = append(spans, span{"INCOMPLETE", styleWarning})
	}
	p.flow(spans...)
	if t.wide && c.APIGroupReason != "" {
		p.wrap("  ", 2, "API group: "+c.APIGroupReason)
	}
}

// taken writes when the data were read and, once that is no longer now, how long
// ago.
func (t *table) taken(at time.Time) string {
	if at.IsZero() {
		return "time not known"
	}
	s := audit.FormatTime(at)
	if t.Now.IsZero() || t.Now.Sub(at) < 2*time.Minute {
		return s
	}
	return s + " (" + age(t.Now.Sub(at)) + " ago)"
}

// age writes a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return plural(int(d.Minutes()), "minute", "minutes")
	case d < 48*time.Hour:
		return plural(int(d.Hours()), "hour", "hours")
	}
	return plural(int(d.Hours()/24), "day", "days")
}

// foot counts the findings by severity and says where to read on.
func (t *table) foot(p *page, r *audit.Report) {
	p.blank()
	s := r.Summary
	looked := fmt.Sprintf("%s, %s, %s, %s", plural(s.Nodes, "node", "nodes"), plural(s.Pools, "pool", "pools"),
		plural(s.Blocks, "block", "blocks"), plural(s.Allocations, "allocated address", "allocated addresses"))
	if len(r.Findings) == 0 {
		switch {
		case s.Pools == 0 && s.Blocks == 0:
			p.wrap("", 0, "No IP pool and no block was seen, so there was nothing to judge. Does this cluster use Calico's IPAM?")
		case !r.Complete:
			p.wrap("", 0, noFindings(s)+" in what could be read: "+looked+".")
		default:
			p.wrap("", 0, noFindings(s)+". Looked at: "+looked+".")
		}
		return
	}
	var spans []span
	for _, c := range []struct {
		n         int
		severity  audit.Severity
		one, many string
	}{
		{s.Critical, audit.Critical, "critical", "critical"}, {s.Error, audit.Error, "error", "errors"},
		{s.Warning, audit.Warning, "warning", "warnings"}, {s.Info, audit.Info, "info", "info"},
	} {
		if c.n == 0 {
			continue
		}
		if len(spans) > 0 {
			spans = append(spans, span{text: ", "})
		}
		spans = append(spans, span{plural(c.n, c.one, c.many), severityStyle(c.severity)})
	}
	if s.Muted > 0 {
		spans = append(spans, span{text: fmt.Sprintf(", %d muted", s.Muted)})
	}
	p.line(spans...)
	p.wrap("Looked at: ", 2, looked+".")
	p.line(span{text: "More about a check: " + t.Program + " checks " + r.Findings[0].Check})
}

// noFindings says that there is nothing to show.
func noFindings(s audit.Summary) string {
	if s.Muted > 0 {
		return "No findings but muted ones"
	}
	return "No findings"
}
