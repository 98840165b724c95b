package view

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// reports are the names of the handwritten reports under testdata/reports.
var reports = []string{"story", "healthy", "huge", "hostile", "incomplete", "empty"}

func loadReport(t *testing.T, name string) *audit.Report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "reports", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	r := new(audit.Report)
	if err := json.Unmarshal(data, r); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return r
}

// testOptions returns options without values that change between runs.
func testOptions(width int) Options {
	return Options{
		Width: width, Source: "dump/", ReportArgs: "-f dump/", Now: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC),
		Why: func(check string) string { return "Why " + check + " matters to those who run pods in the cluster." },
	}
}

func render(t *testing.T, output string, r *audit.Report, o Options) string {
	t.Helper()
	return written(t, ReportFormats(nil), output, r, o)
}

// written returns the output of a value of -o.
func written[T any](t *testing.T, formats Formats[T], output string, v T, o Options) string {
	t.Helper()
	out, err := formats.Parse(output)
	if err != nil {
		t.Fatalf("reading -o %q: %v", output, err)
	}
	var buf bytes.Buffer
	if err := out.Write(&buf, v, o); err != nil {
		t.Fatalf("writing %q: %v", output, err)
	}
	return buf.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	coloured := testOptions(80)
	coloured.Color = true
	for _, report := range reports {
		for _, c := range []struct {
			file, output string
			options      Options
		}{
			{"table.80", "table", testOptions(80)},
			{"table.piped", "table", testOptions(0)},
			{"table.color", "table", coloured},
			{"wide.80", "wide", testOptions(80)},
			{"wide.200", "wide", testOptions(200)},
			{"json", "json", Options{}},
			{"yaml", "yaml", Options{}},
			{"name", "name", Options{}},
			{"columns", `custom-columns=CHECK:.check,NODE:.subject.node,IP:.subject.ip,VALUES:.evidence[*].value`, Options{}},
			{"jsonpath", `jsonpath={range .pools[*]}{.name} {.addresses.capacity}{"\n"}{end}{.summary}{"\n"}`, Options{}},
		} {
			t.Run(report+"."+c.file, func(t *testing.T) {
				golden(t, report+"."+c.file, render(t, c.output, loadReport(t, report), c.options))
			})
		}
	}
}

// TestColorOnlyAdds: without its colour codes the coloured table equals the plain one.
func TestColorOnlyAdds(t *testing.T) {
	for _, report := range reports {
		o := testOptions(80)
		plain := render(t, "table", loadReport(t, report), o)
		o.Color = true
		coloured := render(t, "table", loadReport(t, report), o)
		if diff := cmp.Diff(plain, stripColor(coloured)); diff != "" {
			t.Errorf("%s: colour changes the text (-plain +coloured):\n%s", report, diff)
		}
		if strings.Contains(plain, "\x1b") {
			t.Errorf("%s: the plain table holds an escape sequence", report)
		}
	}
}

func stripColor(s string) string {
	for _, st := range []style{styleCritical, styleError, styleWarning, styleInfo, "0"} {
		s = strings.ReplaceAll(s, "\x1b["+string(st)+"m", "")
	}
	return s
}

// TestTextIsSafe: names in the cluster cannot put control characters into text output.
func TestTextIsSafe(t *testing.T) {
	for _, output := range []string{"table", "wide", "name", "custom-columns=A:.subject.node,M:.message,E:.evidence[*].name"} {
		for i, line := range strings.Split(render(t, output, loadReport(t, "hostile"), testOptions(80)), "\n") {
			if !isClean(line) {
				t.Errorf("%s, line %d is not safe to print: %q", output, i+1, line)
			}
			if strings.HasPrefix(line, "CRITICAL") || strings.HasPrefix(line, "ERROR") {
				t.Errorf("%s, line %d was made up by a name: %q", output, i+1, line)
			}
		}
	}
}

// TestFitsTerminal: at 80 columns no line is wider, except commands and the grids of
// "wide".
func TestFitsTerminal(t *testing.T) {
	for _, report := range reports {
		for i, line := range strings.Split(render(t, "table", loadReport(t, report), testOptions(80)), "\n") {
			if strings.HasPrefix(line, "    next ") {
				continue
			}
			if w := displayWidth(line); w > 80 {
				t.Errorf("%s, line %d is %d columns wide: %q", report, i+1, w, line)
			}
		}
	}
}
