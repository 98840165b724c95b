package view

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

// TestTicketGolden compares the outputs for tickets and CI systems, including muted
// findings, with golden files. JUnit's list of checks is narrowed, because each new check
// extends it.
func TestTicketGolden(t *testing.T) {
	for _, name := range append([]string{"muted"}, reports...) {
		r := loadReport(t, name)
		golden(t, name+".markdown", render(t, "markdown", r, testOptions(0)))
		r.Scope = &audit.Scope{Checks: []string{"handle/leaked", "ip/borrowed"}}
		golden(t, name+".junit", render(t, "junit", r, testOptions(0)))
	}
	for _, c := range []struct{ file, output string }{{"table.80", "table"}, {"wide.80", "wide"}, {"json", "json"}, {"yaml", "yaml"}} {
		golden(t, "muted."+c.file, render(t, c.output, loadReport(t, "muted"), testOptions(80)))
	}
}

// parsed is a JUnit file as CI systems read it.
type parsed struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
	Suites   []struct {
		Tests int `xml:"tests,attr"`
		Cases []struct {
			Name     string `xml:"name,attr"`
			Class    string `xml:"classname,attr"`
			Failures []struct {
				Message string `xml:"message,attr"`
				Type    string `xml:"type,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
			Errors  []struct{} `xml:"error"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Output string `xml:"system-out"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func junitOf(t *testing.T, r *audit.Report, o Options) parsed {
	t.Helper()
	text := render(t, "junit", r, o)
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v\n%s", err, text)
		}
	}
	var p parsed
	if err := xml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// TestJUnit: there is one case for each check. Findings from the threshold up are failures.
func TestJUnit(t *testing.T) {
	for _, c := range []struct {
		report                            string
		failOn                            state.Severity
		failures, errors, skipped, extras int
	}{
		{"story", 0, 4, 0, 0, 0}, {"story", state.Critical, 1, 0, 0, 0}, {"healthy", state.Info, 0, 0, 0, 0}, {"incomplete", 0, 0, 1, 3, 1}, {"empty", 0, 0, 0, 0, 0},
	} {
		r := loadReport(t, c.report)
		p := junitOf(t, r, Options{FailOn: c.failOn})
		cases := p.Suites[0].Cases
		known := map[string]bool{}
		for _, check := range checks.All {
			known[check.ID] = true
		}
		failed, found := 0, 0
		for _, x := range cases {
			delete(known, x.Name)
			found += len(x.Failures)
			if len(x.Failures) > 0 {
				failed++
			}
		}
		want := 0
		for _, f := range r.Findings {
			if f.Severity >= max(c.failOn, state.Warning) || c.failOn == state.Info {
				want++
			}
		}
		if len(known) > 0 || found != want || p.Tests != len(cases) || p.Tests != p.Suites[0].Tests || len(cases) != len(checks.All)+c.extras {
			t.Errorf("%s, %v: %d cases for %d checks, %v missing, %d failures of %d findings", c.report, c.failOn, len(cases), len(checks.All), known, found, want)
		}
		if failed != p.Failures || p.Failures != c.failures || p.Errors != c.errors || p.Skipped != c.skipped {
			t.Errorf("%s, %v: counted %d failures, %d errors, %d skipped; want %d, %d, %d", c.report, c.failOn, p.Failures, p.Errors, p.Skipped, c.failures, c.errors, c.skipped)
		}
	}
}

// hostileTexts are malicious and unlucky names.
var hostileTexts = []string{
	"]]>", "<failure/>", "&amp;", "\x00\x01\x1b[31m", "\ufffe\uffff", "bad\xff\xfeutf8", "\u202eevil", "a\nb\r\nc", `"quotes" 'and'`, "```", "``a` b",
	"| cell |", "[click](http://example.org)", "![x](y)", "<script>alert(1)</script>", "@everyone", "#1", "**bold** __x__ _y_ ~~z~~", "- list", "1. list", "+ x",
	"=====", "---", "# head", "> quote", `\`, "a_b_c", "&lt;", "$x$", "http://example.org/a_b", strings.Repeat("x", 5000),
}

func hostile(text string) *audit.Report {
	return &audit.Report{
		APIVersion: audit.APIVersion, Kind: audit.ReportKind,
		Cluster:       audit.ReportCluster{GUID: text, CalicoVersion: text, APIGroup: text, Datastore: text},
		SkippedChecks: []audit.Skipped{{Check: text, Reason: text}},
		Pools:         []audit.PoolReport{{Name: text, CIDR: text}},
		Findings: []audit.Finding{{Check: "ip/borrowed", Severity: state.Warning, Subject: state.Subject{Kind: state.KindNode, Name: text}, Message: text,
			Evidence: []state.Evidence{{Name: text, Value: text}}, Fix: audit.Fix{Kind: "look", Command: text}}},
		Muted: []audit.Muted{{Rule: text, Count: 1, Findings: []audit.Finding{{Check: "ip/borrowed", Severity: state.Info, Message: text}}}},
	}
}

// TestHostileXML: for any names the XML is well-formed and contains them.
func TestHostileXML(t *testing.T) {
	for _, text := range hostileTexts {
		p := junitOf(t, hostile(text), Options{})
		found := false
		for _, c := range p.Suites[0].Cases {
			for _, f := range c.Failures {
				found = found || strings.Contains(f.Message, Clean(text)) && strings.Contains(f.Text, Clean(text)) && strings.Contains(c.Output, Clean(text))
			}
		}
		if !found {
			t.Errorf("%.40q is lost", text)
		}
	}
}

// TestHostileMarkdown: names cannot add markup to the text.
func TestHostileMarkdown(t *testing.T) {
	plain := strings.Count(render(t, "markdown", hostile("plain"), Options{}), "\n")
	for _, text := range hostileTexts {
		out := render(t, "markdown", hostile(text), Options{})
		if n := strings.Count(out, "\n"); n != plain {
			t.Errorf("%.40q makes %d lines, not %d:\n%.2000s", text, n, plain, out)
		}
		for _, line := range strings.Split(out, "\n") {
			outside := withoutCode(line)
			for _, bad := range []string{"<script", "<failure", "](", "**bold", "__x", "@everyone", "~~", "> quote"} {
				if strings.Contains(strings.ReplaceAll(outside, `\`+bad[:1], ""), bad) {
					t.Errorf("%.40q: %q is markup", text, line)
				}
			}
			if rest, item := strings.CutPrefix(strings.TrimSpace(line), "- "); item && (strings.HasPrefix(rest, "- ") || strings.HasPrefix(rest, "1. ") || strings.HasPrefix(rest, "# ") || rest == "---") {
				t.Errorf("%.40q: %q is a list, heading or rule", text, line)
			}
		}
		if cells := strings.Count(strings.ReplaceAll(rowOf(out), `\|`, ""), "|"); cells != 10 {
			t.Errorf("%.40q: the row of the pool has %d bars: %q", text, cells, rowOf(out))
		}
	}
}

// rowOf returns the row of the only pool.
func rowOf(out string) string {
	_, rest, _ := strings.Cut(out, "|--:|\n")
	row, _, _ := strings.Cut(rest, "\n")
	return row
}

// withoutCode removes code spans from a line.
func withoutCode(line string) string {
	var b strings.Builder
	for line != "" {
		i := strings.IndexByte(line, '`')
		if i < 0 || i > 0 && line[i-1] == '\\' {
			if i < 0 {
				i = len(line) - 1
			}
			b.WriteString(line[:i+1])
			line = line[i+1:]
			continue
		}
		b.WriteString(line[:i])
		fence := line[i : i+len(line[i:])-len(strings.TrimLeft(line[i:], "`"))]
		rest := line[i+len(fence):]
		end := strings.Index(rest, fence)
		if end < 0 {
			b.WriteString(line[i:])
			break
		}
		line = rest[end+len(fence):]
	}
	return b.String()
}

func TestMarkdownText(t *testing.T) {
	for in, want := range map[string]string{
		"node new-1 has 10.64.75.128/26": "node new-1 has 10.64.75.128/26", "10.0.0.1 is used": "10.0.0.1 is used", "a_b_c": "a_b_c", "_a_": `\_a\_`, "a__b": `a\_\_b`,
		"1. x": `1\. x`, "- x": `\- x`, "-": `\-`, "---": `\---`, "====": `\====`, "-x": "-x", "a | b": `a \| b`, "<a&b>": "&lt;a&amp;b&gt;", "pods (4)": "pods (4)",
		"mail a@b": "mail a@<!-- -->b", "": "",
	} {
		if got := mdText(in); got != want {
			t.Errorf("mdText(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"a": "`a`", "a`b": "`` a`b ``", "``": "``` `` ```", "": "", "a\nb": "`a\\nb`"} {
		if got := mdCode(in); got != want {
			t.Errorf("mdCode(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestMarkdownIsBounded: a thousand alike findings still make a ticket of acceptable size.
func TestMarkdownIsBounded(t *testing.T) {
	r := loadReport(t, "healthy")
	for i := range 1000 {
		r.Findings = append(r.Findings, audit.Finding{Check: "ip/leaked", Severity: state.Warning, Message: fmt.Sprintf("10.0.%d.%d is leaked", i/250, i%250),
			Subject: state.Subject{Kind: state.KindIP, IP: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}, Evidence: []state.Evidence{{Name: "block", Value: "10.0.0.0/26"}}})
	}
	out := render(t, "markdown", r, Options{})
	if len(out) > 30000 || !strings.Contains(out, "… and 990 more: `10.0.0.10`") {
		t.Errorf("%d bytes:\n%.3000s", len(out), out)
	}
}

// comparison contains every change.
func comparison(t *testing.T) *audit.Diff {
	t.Helper()
	from, to := loadReport(t, "story"), loadReport(t, "story")
	from.Findings = from.Findings[:len(from.Findings)-1]
	from.Findings[1].Severity = state.Info
	to.Findings = to.Findings[1:]
	to.SkippedChecks = []audit.Skipped{{Check: from.Findings[len(from.Findings)-1].Check, Reason: "pods: forbidden"}}
	to.Findings = slices.DeleteFunc(to.Findings, func(f audit.Finding) bool { return f.Check == to.SkippedChecks[0].Check })
	to.Findings = append(to.Findings, audit.Finding{Check: "ip/leaked", Severity: state.Error, Message: "leaked", Subject: state.Subject{Kind: state.KindIP, IP: "10.0.0.1"}})
	d := audit.Compare(from, to)
	d.Old.Source, d.New.Source = "old.json", "new|dump/"
	return d
}

func TestDiffGolden(t *testing.T) {
	for _, format := range DiffFormats() {
		text := written(t, DiffFormats(), format.Name, comparison(t), testOptions(80))
		golden(t, "diff."+format.Name, text)
		if format.Name == "json" {
			var again audit.Diff
			if err := json.Unmarshal([]byte(text), &again); err != nil || again.Summary != comparison(t).Summary || len(again.Findings) != len(comparison(t).Findings) {
				t.Errorf("it reads back as %+v, %v", again, err)
			}
		}
	}
}

// TestDiffIsSafe: names in the cluster cannot add lines, and a hundred alike findings do
// not hide the others.
func TestDiffIsSafe(t *testing.T) {
	from, to := loadReport(t, "empty"), loadReport(t, "hostile")
	for i := range 100 {
		to.Findings = append(to.Findings, audit.Finding{Check: "ip/leaked", Severity: state.Info, Message: "leaked", Subject: state.Subject{Kind: state.KindIP, IP: fmt.Sprintf("10.0.0.%d", i)}})
	}
	for _, format := range []string{"table", "name", "markdown"} {
		text := written(t, DiffFormats(), format, audit.Compare(from, to), testOptions(80))
		for i, line := range strings.Split(text, "\n") {
			if !isClean(line) || strings.HasPrefix(line, "ERROR") {
				t.Errorf("%s, line %d: %q", format, i+1, line)
			}
		}
		if format != "name" && !strings.Contains(text, "and 80 more of ip/leaked") {
			t.Errorf("%s writes all of them", format)
		}
	}
}

func TestSnapshotFormats(t *testing.T) {
	for name, want := range map[string]string{
		"a.yaml": "yaml", "a.yml": "yaml", "a.YAML": "yaml", "a.json": "json", "a.json.gz": "json.gz", "a.yaml.gz": "yaml.gz", "dir/a.yml.gz": "yaml.gz",
		"a": "", "yaml": "", "a.gz": "", "a.txt": "", "-": "",
	} {
		if got, known := SnapshotFormat(name); got != want || known != (want != "") {
			t.Errorf("%s is of the format %q, %t; want %q", name, got, known, want)
		}
	}
}
