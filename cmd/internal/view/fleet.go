package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// FleetKind is the kind of a document that holds the reports of several clusters.
const FleetKind = "FleetReport"

// FleetReport is the reports of several clusters, the worst first.
type FleetReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Complete is false if any cluster could not be read, or not as a whole.
	Complete bool         `json:"complete"`
	Summary  FleetSummary `json:"summary"`
	Items    []FleetItem  `json:"items"`
}

// FleetSummary counts clusters, and the findings of those that were read.
type FleetSummary struct {
	Clusters int `json:"clusters"`
	Unread   int `json:"unread"`
	Critical int `json:"critical"`
	Error    int `json:"error"`
	Warning  int `json:"warning"`
	Info     int `json:"info"`
	Muted    int `json:"muted,omitempty"`
}

// FleetItem is a cluster's report, or why there is none.
type FleetItem struct {
	Context string `json:"context"`
	// Same are the other contexts that lead to the same cluster.
	Same []string `json:"sameCluster,omitempty"`
	// Note says what else is to be known of the cluster.
	Note string `json:"note,omitempty"`
	// Error says why the cluster could not be read; empty if it was.
	Error    string `json:"error,omitempty"`
	Complete bool   `json:"complete"`
	// Report is nil for a cluster that could not be read.
	*audit.Report

	// Args are the arguments by which commands read this cluster, PortableArgs those
	// without paths of this machine.
	Args, PortableArgs string `json:"-"`
}

// NewFleetReport returns the document of some clusters, in the order given.
func NewFleetReport(items []FleetItem) *FleetReport {
	f := &FleetReport{APIVersion: audit.APIVersion, Kind: FleetKind, Complete: true, Items: items}
	f.Summary.Clusters = len(items)
	for i := range items {
		x := &items[i]
		x.Complete = x.Report != nil && x.Report.Complete
		f.Complete = f.Complete && x.Complete
		if x.Report == nil {
			f.Summary.Unread++
			continue
		}
		s := x.Report.Summary
		f.Summary.Critical += s.Critical
		f.Summary.Error += s.Error
		f.Summary.Warning += s.Warning
		f.Summary.Info += s.Info
		f.Summary.Muted += s.Muted
	}
	return f
}

// WithCommands returns the document with each command reading the cluster that it is about.
func (f *FleetReport) WithCommands(write func(string) string) *FleetReport {
	out := *f
	out.Items = nil
	for _, x := range f.Items {
		if x.Report != nil {
			x.Report = x.Report.WithCommands(func(c string) string {
				return write(Options{Program: "calico-audit", ReportArgs: x.Args}.Command(c))
			})
		}
		out.Items = append(out.Items, x)
	}
	return &out
}

// Headline says in a few words what was found in how many clusters.
func (f *FleetReport) Headline() string {
	s := f.Summary
	found := SeverityCounts(audit.Summary{Critical: s.Critical, Error: s.Error, Warning: s.Warning, Info: s.Info})
	switch {
	case s.Unread == s.Clusters:
		return Plural(s.Clusters, "cluster", "clusters") + ", none of which could be read"
	case s.Unread > 0:
		return fmt.Sprintf("%s, %d not read: %s", Plural(s.Clusters, "cluster", "clusters"), s.Unread, cmp.Or(found, "no findings in the others"))
	case !f.Complete:
		return Plural(s.Clusters, "cluster", "clusters") + ": " + cmp.Or(found, "no findings in what could be read")
	}
	return Plural(s.Clusters, "cluster", "clusters") + ": " + cmp.Or(found, "no findings")
}

// worst is the gravest severity of a report's findings; 0 for none.
func (x *FleetItem) worst() state.Severity {
	for _, c := range CountSeverities(x.Report.Summary) {
		return c.Severity
	}
	return 0
}

// Word says in a word how bad a cluster is.
func (x *FleetItem) Word() string {
	switch {
	case x.Report == nil:
		return "not read"
	case x.worst() != 0:
		return x.worst().String()
	case !x.Complete:
		return "incomplete"
	}
	return "ok"
}

// Line says what was found in a cluster, or why it could not be read.
func (x *FleetItem) Line() string {
	var parts []string
	if x.Report == nil {
		parts = append(parts, x.Error)
	} else {
		found := cmp.Or(SeverityCounts(x.Report.Summary), "no findings")
		if n := x.Report.Summary.Muted; n > 0 {
			found += fmt.Sprintf(", %d muted", n)
		}
		parts = append(parts, found)
		if gaps := blocks.NotHeld(x.Report.Gaps); !x.Report.Complete && len(gaps) > 0 {
			parts = append(parts, "incomplete, not seen: "+gaps[0].String())
		} else if !x.Report.Complete {
			parts = append(parts, "incomplete")
		}
		parts = append(parts, Seen(x.Report.Summary))
	}
	if len(x.Same) > 0 {
		parts = append(parts, "also reached by "+phrase.One(len(x.Same), "context ", "contexts ")+strings.Join(x.Same, ", "))
	}
	if x.Note != "" {
		parts = append(parts, x.Note)
	}
	return strings.Join(parts, "; ")
}

// CompareWorst orders clusters, the worst first: those that could not be read, then by the
// gravest finding, those that were read in part before others, and by the numbers of findings.
func (x *FleetItem) CompareWorst(y *FleetItem) int {
	if x.Report == nil || y.Report == nil {
		return compareBool(x.Report == nil, y.Report == nil)
	}
	order := cmp.Or(cmp.Compare(y.worst(), x.worst()), compareBool(!x.Report.Complete, !y.Report.Complete))
	for _, s := range severities {
		order = cmp.Or(order, cmp.Compare(*y.Report.Summary.Of(s.severity), *x.Report.Summary.Of(s.severity)))
	}
	return order
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// SameGUID reports whether two reports are of clusters with one GUID.
func (x *FleetItem) SameGUID(y *FleetItem) bool {
	return x.Report != nil && y.Report != nil && x.Report.Cluster.GUID != "" && x.Report.Cluster.GUID == y.Report.Cluster.GUID
}

// SameReport reports whether two reports say the same, their times aside.
func (x *FleetItem) SameReport(y *FleetItem) bool {
	text := func(r audit.Report) string {
		r.Cluster.TakenAt = audit.Time{}
		raw, err := json.Marshal(r)
		if err != nil {
			return "" // equal to no other: a report can be written
		}
		return string(raw)
	}
	a, b := text(*x.Report), text(*y.Report)
	return a != "" && a == b
}

// Options returns the options of one cluster's report.
func (x *FleetItem) Options(o Options) Options {
	o.ReportArgs, o.PortableArgs, o.Source = x.Args, x.PortableArgs, "context "+x.Context
	return o
}

// FleetFormats returns the formats of several clusters' reports. page writes them as a page
// of HTML.
func FleetFormats(page func(io.Writer, *FleetReport, Options) error) Formats[*FleetReport] {
	return Formats[*FleetReport]{
		{Name: "table", Help: "a line per cluster, and what is wrong in each, for people", Write: forPeople((*printer).fleet, false)},
		{Name: "wide", Help: "a line per cluster, and each cluster's report in full", Write: forPeople((*printer).fleet, true)},
		{Name: "json", Help: "all reports in one document", Write: asJSON[*FleetReport]},
		{Name: "yaml", Help: "the same as YAML", Write: asYAML[*FleetReport]},
		{Name: "jsonpath", Argument: "TEMPLATE", Help: "parts of the document, as kubectl's jsonpath", with: asPath[*FleetReport]},
		{Name: "html", Help: "one page of all clusters", Write: page},
		{Name: "junit", Help: "a test suite per cluster, for CI systems", Write: fleetJUnit},
		{Name: "markdown", Help: "for tickets", Write: fleetMarkdown},
	}
}

func (p *printer) fleet(f *FleetReport) {
	p.say(f.Headline())
	p.blank()
	name, word := 0, 0
	for i := range f.Items {
		name, word = max(name, displayWidth(Clean(f.Items[i].Context))), max(word, len(f.Items[i].Word()))
	}
	indent := name + 2 + word + 2
	for i := range f.Items {
		x := &f.Items[i]
		color := styleWarning
		switch {
		case x.Report == nil:
			color = styleCritical
		case x.worst() != 0:
			color = styleOf(x.worst())
		case x.Complete:
			color = ""
		}
		lead := []span{{text: pad(Clean(x.Context), name, false) + "  "}, {strings.ToUpper(x.Word()), color}, {text: strings.Repeat(" ", word-len(x.Word())+2)}}
		for j, l := range wrapWords(Clean(x.Line()), max(p.Width-indent, 30)) {
			if j == 0 {
				p.line(append(lead, span{text: l})...)
			} else {
				p.say(strings.Repeat(" ", indent) + l)
			}
		}
	}
	for i := range f.Items {
		x := &f.Items[i]
		if x.Report == nil || !p.wide && x.Complete && len(x.Report.Findings) == 0 {
			continue
		}
		p.section("=== " + x.Context + " ===")
		one := newPrinter(x.Options(p.Options), p.wide)
		if p.wide {
			one.report(x.Report)
		} else {
			one.head(&x.Report.Cluster, x.Report.Complete)
			one.diagnoses(x.Report.Diagnoses)
			one.notSeen(x.Report.Gaps, x.Report.SkippedChecks)
			one.blank()
			one.say("All of it: " + one.Command("calico-audit report "))
		}
		p.buf.Write(one.buf.Bytes())
	}
}

func fleetJUnit(w io.Writer, f *FleetReport, o Options) error {
	var suites []junitSuite
	for i := range f.Items {
		x := &f.Items[i]
		name := "calico-audit " + Clean(x.Context)
		if x.Report != nil {
			suites = append(suites, newJUnitSuite(name, x.Report, x.Options(o)))
			continue
		}
		s := junitSuite{junitCounts: junitCounts{Name: name}, Cases: []junitCase{{
			ClassName: "calico-audit", Name: "the cluster could be read", Errors: []junitText{{Clean(x.Error), "unread", Clean(x.Error)}},
		}}}
		s.count()
		suites = append(suites, s)
	}
	return writeSuites(w, suites...)
}

func fleetMarkdown(w io.Writer, f *FleetReport, o Options) error {
	var buf bytes.Buffer
	if err := asMarkdown[*FleetReport]("fleet")(&buf, f, o); err != nil {
		return err
	}
	for i := range f.Items {
		x := &f.Items[i]
		if x.Report == nil {
			continue
		}
		buf.WriteByte('\n')
		if err := asMarkdown[*audit.Report]("report")(&buf, x.Report, x.Options(o)); err != nil {
			return err
		}
	}
	_, err := w.Write(buf.Bytes())
	return err
}
