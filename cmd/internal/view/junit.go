package view

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

type junitCounts struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Skipped  int    `xml:"skipped,attr"`
}

type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	junitCounts
	Suites []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	junitCounts
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	ClassName string       `xml:"classname,attr"`
	Name      string       `xml:"name,attr"`
	Skipped   *junitResult `xml:"skipped"`
	Errors    []junitText  `xml:"error"`
	Failures  []junitText  `xml:"failure"`
	Output    *junitOutput `xml:"system-out"`
}

type junitOutput struct {
	Text string `xml:",cdata"`
}

type junitResult struct {
	Message string `xml:"message,attr"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",cdata"`
}

// writeJUnit writes a report as JUnit XML, which CI systems show as test results, with a
// test case for each check, by ID. Findings at or above --fail-on are failures; others, and
// muted ones, are output. A check without a verdict is skipped. Gaps are errors of an extra
// case, so that a partial reading does not look clean.
func writeJUnit(w io.Writer, r *audit.Report, o Options) error {
	return writeSuites(w, newJUnitSuite("calico-audit", r, o))
}

// newJUnitSuite returns the test suite of a report.
func newJUnitSuite(name string, r *audit.Report, o Options) junitSuite {
	r = pasted(r, o)
	failOn := cmp.Or(o.FailOn, state.Warning)
	s := junitSuite{junitCounts: junitCounts{Name: name}, Timestamp: r.Cluster.TakenAt.String(), Properties: []junitProperty{
		{"cluster", Clean(r.Cluster.GUID)}, {"calicoVersion", Clean(r.Cluster.CalicoVersion)}, {"failOn", failOn.String()},
	}}
	for _, id := range checksOf(r) {
		s.Cases = append(s.Cases, junitCheck(r, id, failOn))
	}
	if !r.Complete {
		c := junitCase{ClassName: "calico-audit", Name: "everything could be read"}
		for _, g := range blocks.Untolerated(r.Gaps) {
			c.Errors = append(c.Errors, junitText{Clean(g.String()), "incomplete", Clean(g.String())})
		}
		if len(c.Errors) == 0 {
			c.Errors = append(c.Errors, junitText{"the report is incomplete", "incomplete", ""})
		}
		s.Cases = append(s.Cases, c)
	}
	s.count()
	return s
}

func (s *junitSuite) count() {
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case len(c.Failures) > 0:
			s.Failures++
		case len(c.Errors) > 0:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

// writeSuites writes test suites with their totals.
func writeSuites(w io.Writer, suites ...junitSuite) error {
	all := junitSuites{junitCounts: junitCounts{Name: "calico-audit"}, Suites: suites}
	for i := range suites {
		all.Tests += suites[i].Tests
		all.Failures += suites[i].Failures
		all.Errors += suites[i].Errors
		all.Skipped += suites[i].Skipped
	}
	var buf bytes.Buffer
	buf.WriteString(xml.Header)
	e := xml.NewEncoder(&buf)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("writing XML: %w", err)
	}
	buf.WriteByte('\n')
	_, err := w.Write(buf.Bytes())
	return err
}

// checksOf returns the IDs of the checks that ran, and of unknown checks in a report of
// another version.
func checksOf(r *audit.Report) []string {
	var ids []string
	if r.Scope != nil && len(r.Scope.Checks) > 0 {
		ids = append(ids, r.Scope.Checks...)
	} else {
		for _, c := range checks.All {
			ids = append(ids, c.ID)
		}
	}
	for i := range r.Findings {
		ids = append(ids, r.Findings[i].Check)
	}
	for _, s := range r.SkippedChecks {
		ids = append(ids, s.Check)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func junitCheck(r *audit.Report, id string, failOn state.Severity) junitCase {
	group, _, _ := strings.Cut(id, "/")
	c := junitCase{ClassName: "calico-audit." + Clean(group), Name: Clean(id)}
	var said []string
	for i := range r.Findings {
		f := &r.Findings[i]
		switch {
		case f.Check != id:
		case f.Severity >= failOn:
			c.Failures = append(c.Failures, junitText{Clean(Message(f)), f.Severity.String(), findingText(f)})
		default:
			said = append(said, findingText(f))
		}
	}
	for _, m := range r.Muted {
		for i := range m.Findings {
			if f := &m.Findings[i]; f.Check == id {
				said = append(said, "muted by "+Clean(m.Rule)+": "+Clean(Message(f)))
			}
		}
	}
	var skipped []string
	for _, s := range r.SkippedChecks {
		if s.Check == id {
			skipped = append(skipped, Clean(s.Reason))
		}
	}
	if len(skipped) > 0 && len(c.Failures) == 0 {
		c.Skipped = &junitResult{strings.Join(skipped, "; ")}
	} else {
		for _, reason := range skipped {
			said = append(said, "not evaluated: "+reason)
		}
	}
	if len(said) > 0 {
		c.Output = &junitOutput{strings.Join(said, "\n")}
	}
	return c
}

func findingText(f *audit.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.Severity, Clean(Message(f)))
	for _, e := range f.Evidence {
		fmt.Fprintf(&b, "  %s: %s\n", Clean(e.Name), Clean(e.Value))
	}
	if f.Fix.Command != "" {
		fmt.Fprintf(&b, "  next: %s\n", Clean(f.Fix.Command))
	}
	return b.String()
}
