package view

import (
	"cmp"
	"fmt"
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// FleetKind is the kind of a FleetReport.
const FleetKind = "FleetReport"

// FleetReport holds the reports of several clusters.
type FleetReport = Fleet[ClusterReport]

// ClusterReport is the report of one cluster.
type ClusterReport struct{ *audit.Report }

func (r ClusterReport) of() *audit.ReportCluster { return &r.Cluster }
func (r ClusterReport) whole() bool              { return r.Complete }

// worst returns the highest severity of the findings.
func (r ClusterReport) worst() state.Severity {
	for _, c := range CountSeverities(r.Summary.FindingCounts) {
		return c.Severity
	}
	return 0
}

func (r ClusterReport) word() string {
	if s := r.worst(); s != 0 {
		return s.String()
	}
	return "ok"
}

func (r ClusterReport) numbers() (out []int) {
	for _, s := range state.Severities {
		out = append(out, *r.Summary.Of(s))
	}
	return out
}

func (r ClusterReport) lines() []string {
	found := cmp.Or(SeverityCounts(r.Summary.FindingCounts), noFindings(r.Complete))
	if n := r.Summary.Muted; n > 0 {
		found += fmt.Sprintf(", %d muted", n)
	}
	return append(append([]string{found}, notWhole(r.Complete, r.Gaps)...), Seen(r.Report))
}

// notWhole names the first gap of an incomplete report.
func notWhole(complete bool, gaps []blocks.Gap) []string {
	if gaps := blocks.Untolerated(gaps); !complete && len(gaps) > 0 {
		return []string{"incomplete, not seen: " + gaps[0].String()}
	} else if !complete {
		return []string{"incomplete"}
	}
	return nil
}

func (r ClusterReport) addTo(f *FleetSummary) {
	if f.FindingCounts == nil {
		f.FindingCounts = &audit.FindingCounts{}
	}
	if r.Report == nil {
		return
	}
	for _, s := range state.Severities {
		*f.Of(s) += *r.Summary.Of(s)
	}
	f.Muted += r.Summary.Muted
}

func (r ClusterReport) withCommands(write func(string) string) FleetMember {
	return ClusterReport{r.WithCommands(write)}
}

func (r ClusterReport) print(p *printer) {
	if p.wide {
		p.report(r.Report)
		return
	}
	p.head(&r.Cluster, r.Complete)
	p.diagnoses(r.Diagnoses)
	p.notSeen(r.Gaps, r.SkippedChecks, false)
	if p.ReportArgs != "" { // without it the report was read from a file, and the cluster's address is unknown
		p.blank()
		p.say("Full report: " + p.Command("calico-audit report "))
	}
}

func (r ClusterReport) markdown(w io.Writer, o Options) error {
	return asMarkdown[*audit.Report]("report")(w, r.Report, o)
}

// FleetFormats returns the formats of a FleetReport. page writes it as HTML.
func FleetFormats(page func(io.Writer, *FleetReport, Options) error) Formats[*FleetReport] {
	return append(fleetFormats(page), Format[*FleetReport]{Name: "junit", Help: "a test suite per cluster, for CI systems", Write: fleetJUnit})
}

func fleetJUnit(w io.Writer, f *FleetReport, o Options) error {
	var suites []junitSuite
	for i := range f.Items {
		x := &f.Items[i]
		name := "calico-audit " + Clean(x.Context)
		if x.Error == "" {
			suites = append(suites, newJUnitSuite(name, x.Of.Report, x.Options(o)))
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
