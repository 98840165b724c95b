package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// markdownShown is how many alike findings are written out: a ticket has its
// limits, too.
const markdownShown = 10

// markdownPrinter writes a report for a ticket.
type markdownPrinter struct{ Options }

func newMarkdown(_ string, o Options) (Printer, error) { return markdownPrinter{o.defaults()}, nil }

// Print writes the report.
func (m markdownPrinter) Print(w io.Writer, r *audit.Report) error {
	var b bytes.Buffer
	counted := severities(r.Summary)
	if counted == "" {
		counted = "no findings"
	}
	fmt.Fprintf(&b, "## calico-audit: %s\n\n", counted)
	m.cluster(&b, r)
	m.missing(&b, r)
	markdownHosts(&b, r)
	markdownPools(&b, r)
	explained := map[string]bool{}
	for _, g := range groups(r) {
		fmt.Fprintf(&b, "\n### %s %s", strings.ToUpper(g[0].Severity.String()), mdCode(g[0].Check))
		if len(g) > 1 {
			fmt.Fprintf(&b, " (%d)", len(g))
		}
		b.WriteString("\n\n")
		if check := g[0].Check; !explained[check] {
			explained[check] = true
			if why := m.Why(check); why != "" {
				fmt.Fprintf(&b, "%s\n\n", mdText(why))
			}
		}
		m.group(&b, g)
	}
	markdownMuted(&b, r)
	_, err := w.Write(b.Bytes())
	return err
}

// cluster says which cluster was read, when and from where.
func (m markdownPrinter) cluster(b *bytes.Buffer, r *audit.Report) {
	c := r.Cluster
	cells := []string{}
	add := func(name, value string) {
		if value != "" {
			cells = append(cells, name+" "+mdCode(value))
		}
	}
	add("Cluster", c.GUID)
	add("Calico", c.CalicoVersion)
	add("read from", orText(m.Source, c.Datastore))
	add("API group", c.APIGroup)
	add("at", audit.FormatTime(c.TakenAt.Time))
	s := r.Summary
	fmt.Fprintf(b, "%s\n\nLooked at %s, %s, %s, %s.\n", strings.Join(cells, ", "), plural(s.Nodes, "node", "nodes"), plural(s.Pools, "pool", "pools"),
		plural(s.Blocks, "block", "blocks"), plural(s.Allocations, "allocated address", "allocated addresses"))
}

// missing says what could not be read and judged.
func (m markdownPrinter) missing(b *bytes.Buffer, r *audit.Report) {
	if !r.Complete {
		b.WriteString("\n**Incomplete.** Not seen:\n\n")
		for _, g := range blocks.NotHeld(r.Gaps) {
			fmt.Fprintf(b, "- %s\n", mdText(g.String()))
		}
	}
	for i, g := range held(r.Gaps) {
		if i == 0 {
			fmt.Fprintf(b, "\n**Unreadable** (%s):\n\n", heldMeans)
		}
		fmt.Fprintf(b, "- %s\n", mdText(g.String()))
	}
	if len(r.SkippedChecks) > 0 {
		b.WriteString("\n**Not judged:**\n\n")
		for _, s := range byReason(r.SkippedChecks) {
			fmt.Fprintf(b, "- %s: %s\n", mdText(strings.Join(s.checks, ", ")), mdText(s.reason))
		}
	}
}

func markdownPools(b *bytes.Buffer, r *audit.Report) {
	if len(r.Pools) == 0 {
		return
	}
	b.WriteString("\n| pool | CIDR | in use | available | blocks | to claim | reclaimable | needed |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, p := range r.Pools {
		name := mdCode(p.Name)
		if p.Disabled {
			name += " (disabled)"
		}
		fmt.Fprintf(b, "| %s | %s | %s/%s | %s | %s/%s | %s | %s | %s |\n", mdCell(name), mdCell(mdCode(p.CIDR)),
			p.Addresses.InUse, p.Addresses.Capacity, p.Addresses.Available,
			p.Blocks.Claimed, p.Blocks.Capacity, p.Blocks.Allocatable, p.Blocks.Reclaimable, p.Blocks.Needed)
	}
}

// group writes alike findings with their evidence, and what to do about each.
func (m markdownPrinter) group(b *bytes.Buffer, g group) {
	n := len(g)
	if n > markdownShown+1 {
		n = markdownShown
	}
	for _, f := range g[:n] {
		fmt.Fprintf(b, "- %s\n", mdText(message(f)))
		for _, e := range f.Evidence {
			fmt.Fprintf(b, "  - %s: %s\n", mdText(e.Name), mdText(e.Value))
		}
		switch {
		case f.Fix.Command == "":
		case f.Fix.Kind == "manual":
			fmt.Fprintf(b, "  - **next:** %s\n", mdText(f.Fix.Command))
		default:
			t := table{Options: m.Options}
			fmt.Fprintf(b, "  - **next:** %s\n", mdCode(t.command(f.Fix.Command)))
		}
	}
	if rest := g[n:]; len(rest) > 0 {
		var ids []string
		for _, f := range rest {
			ids = append(ids, mdCode(f.Subject.ID()))
		}
		fmt.Fprintf(b, "- … and %d more: %s\n", len(rest), strings.Join(ids, ", "))
	}
}

func markdownMuted(b *bytes.Buffer, r *audit.Report) {
	if len(r.Muted) == 0 {
		return
	}
	fmt.Fprintf(b, "\n**Muted:** %s\n\n", plural(r.Summary.Muted, "finding", "findings"))
	for i := range r.Muted {
		fmt.Fprintf(b, "- %s\n", mdText(mutedBy(&r.Muted[i])))
	}
}

// severities counts findings in words: "1 critical, 2 errors".
func severities(s audit.Summary) string {
	var out []string
	for _, c := range []struct {
		n         int
		one, many string
	}{{s.Critical, "critical", "critical"}, {s.Error, "error", "errors"}, {s.Warning, "warning", "warnings"}, {s.Info, "info", "info"}} {
		if c.n > 0 {
			out = append(out, plural(c.n, c.one, c.many))
		}
	}
	return strings.Join(out, ", ")
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
