package view

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGuide: the guide lists the formats of a report.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../GUIDE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "\n`-o` takes ")
	sentence, _, _ := strings.Cut(rest, ", and may be repeated")
	var listed, want []string
	for _, m := range regexp.MustCompile("`([a-z-]+)(?:=…)?`").FindAllStringSubmatch(sentence, -1) {
		listed = append(listed, m[1])
	}
	for _, f := range ReportFormats(nil) {
		want = append(want, f.Name)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("cmd/GUIDE.md lists other formats than -o takes (-want +got):\n%s", diff)
	}
}

func TestParseOutput(t *testing.T) {
	for _, c := range []struct{ value, format, writes, file, err string }{
		{value: "table", format: "table"},
		{value: "json=report.json", format: "json", file: "report.json"},
		{value: "json=-", format: "json"},
		{value: "yaml=a=b", format: "yaml", file: "a=b"},
		{value: "jsonpath={.kind}={.complete}", format: "jsonpath", writes: "AuditReport=true"},
		{value: "custom-columns=A:.check", format: "custom-columns", writes: "A\n"},
		{value: "jsonpath", err: "needs an argument: jsonpath=TEMPLATE"},
		{value: "custom-columns=", err: "needs an argument: custom-columns=SPEC"},
		{value: "json=", err: "has no file name"},
		{value: "xml", err: `unknown output format "xml": want one of table, wide, map, json, yaml, name, jsonpath=TEMPLATE, custom-columns=SPEC`},
		{value: "", err: `unknown output format ""`},
	} {
		got, err := ReportFormats(nil).Parse(c.value)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("Parse(%q): error %v, want one that says %q", c.value, err, c.err)
			}
			continue
		}
		if err != nil || got.Name != c.format || got.File != c.file {
			t.Errorf("Parse(%q) = %s, %q, %v", c.value, got.Name, got.File, err)
		}
		if c.writes != "" {
			if text := render(t, c.value, loadReport(t, "empty"), Options{}); text != c.writes {
				t.Errorf("-o %s writes %q, want %q", c.value, text, c.writes)
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	for value, want := range map[string]string{
		"jsonpath={.a":                   "reading the jsonpath template",
		"custom-columns=CHECK":           `"CHECK": want HEADER:PATH`,
		"custom-columns=A:.check,":       `"": want HEADER:PATH`,
		"custom-columns=:.check":         "want HEADER:PATH",
		"custom-columns=A:{.check":       "reading custom-columns",
		"custom-columns=A:.evidence[?(x": "reading custom-columns",
	} {
		if _, err := ReportFormats(nil).Parse(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-o %s: error %v, want one that says %q", value, err, want)
		}
	}
}

// TestTemplateError: a template that cannot be applied gives its own error, and nothing is
// written.
func TestTemplateError(t *testing.T) {
	for _, value := range []string{`jsonpath={.kind}{.pools[?(@.name>3)].name}`, `custom-columns=A:.evidence[?(@.name>3)].value`} {
		out, err := ReportFormats(nil).Parse(value)
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		var template *TemplateError
		if err := out.Write(&buf, loadReport(t, "story"), Options{}); !errors.As(err, &template) {
			t.Errorf("-o %s: error %v, want a TemplateError", value, err)
		}
		if buf.Len() > 0 {
			t.Errorf("-o %s wrote %q beside the error", value, buf.String())
		}
	}
}

func TestColumns(t *testing.T) {
	got := render(t, `custom-columns=CHECK:check,QUOTED:{.evidence[?(@.name=="a,b")].value},FIX:.fix,IP:.subject.ip`, loadReport(t, "healthy"), Options{})
	if want := "CHECK   QUOTED   FIX   IP\n"; got != want {
		t.Errorf("without findings: %q, want %q", got, want)
	}
	r := loadReport(t, "story")
	r.Findings = r.Findings[3:4]
	r.Findings[0].Evidence[0].Name = "a,b"
	got = render(t, `custom-columns=CHECK:check,QUOTED:{.evidence[?(@.name=="a,b")].value},FIX:.fix.kind,NO:.nothing,SUBJECT:.subject`, r, Options{})
	want := "CHECK         QUOTED     FIX      NO       SUBJECT\n" +
		`ip/borrowed   worker-2   manual   <none>   {"ip":"10.64.75.70","kind":"IP","node":"worker-3"}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns differ (-want +got):\n%s", diff)
	}
	got = render(t, "custom-columns=CHECK:.check", r, Options{NoHeaders: true})
	if want := "ip/borrowed\n"; got != want {
		t.Errorf("without headers: %q, want %q", got, want)
	}
}

func TestNameIsUniqueAndSorted(t *testing.T) {
	r := loadReport(t, "story")
	r.Findings = append(r.Findings, r.Findings...)
	want := "cluster/8a1f6c0de5b94f0db1b1d0c3a4e5f607\nip/10.64.75.70\nip/10.64.75.71\nip/10.64.75.72\nip/10.64.75.73\nip/10.64.75.74\n" +
		"ippool/pods-v4\nnode/worker-3\nnode/worker-4\n"
	if diff := cmp.Diff(want, render(t, "name", r, Options{})); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}
