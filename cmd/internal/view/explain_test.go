package view

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/explain"
)

// explanations are the names of the files under testdata/explanations.
var explanations = []string{"ip", "block", "node", "several", "hostile"}

func loadExplanation(t *testing.T, name string) *explain.Explanation {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "explanations", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	e := new(explain.Explanation)
	if err := json.Unmarshal(data, e); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return e
}

func renderExplanation(t *testing.T, output, name string, o Options) string {
	t.Helper()
	return written(t, ExplainFormats(), output, loadExplanation(t, name), o)
}

func TestExplainGolden(t *testing.T) {
	coloured := testOptions(80)
	coloured.Color = true
	for _, name := range explanations {
		for _, c := range []struct {
			file, output string
			options      Options
		}{
			{"table.80", "table", testOptions(80)},
			{"table.piped", "table", testOptions(0)},
			{"table.color", "table", coloured},
			{"wide.80", "wide", testOptions(80)},
			{"yaml", "yaml", Options{}},
			{"jsonpath", `jsonpath={range .subjects[*]}{.subject.kind}: {.summary}{"\n"}{end}`, Options{}},
		} {
			t.Run(name+"."+c.file, func(t *testing.T) {
				golden(t, "explain."+name+"."+c.file, renderExplanation(t, c.output, name, c.options))
			})
		}
	}
}

// TestExplainJSONIsWhole: JSON is read back as the same explanation.
func TestExplainJSONIsWhole(t *testing.T) {
	for _, name := range explanations {
		want := loadExplanation(t, name)
		got := new(explain.Explanation)
		if err := json.Unmarshal([]byte(renderExplanation(t, "json", name, Options{})), got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantJSON, errWant := json.Marshal(want)
		gotJSON, errGot := json.Marshal(got)
		if errWant != nil || errGot != nil {
			t.Fatal(errWant, errGot)
		}
		if diff := cmp.Diff(string(wantJSON), string(gotJSON)); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
}

// TestExplainTextIsSafe: names in the cluster cannot put control characters into the
// output, or a line that looks like a finding.
func TestExplainTextIsSafe(t *testing.T) {
	for _, output := range []string{"table", "wide"} {
		for i, line := range strings.Split(renderExplanation(t, output, "hostile", testOptions(80)), "\n") {
			if !isClean(line) {
				t.Errorf("%s, line %d is not safe to print: %q", output, i+1, line)
			}
			if strings.HasPrefix(line, "CRITICAL") || strings.HasPrefix(line, "ERROR") && !strings.HasPrefix(line, "ERROR node/no-block") {
				t.Errorf("%s, line %d was made up by a name: %q", output, i+1, line)
			}
		}
	}
}

// TestExplainFitsTerminal: at 80 columns no line of the table is wider, except commands and
// long single words such as handles.
func TestExplainFitsTerminal(t *testing.T) {
	for _, name := range explanations {
		for i, line := range strings.Split(renderExplanation(t, "table", name, testOptions(80)), "\n") {
			words := strings.Fields(line)
			if strings.HasPrefix(line, "    next ") || len(words) <= 2 {
				continue
			}
			if w := displayWidth(line); w > 80 {
				t.Errorf("%s, line %d is %d columns wide: %q", name, i+1, w, line)
			}
		}
	}
}

// TestExplainColorOnlyAdds: colour adds no information.
func TestExplainColorOnlyAdds(t *testing.T) {
	for _, name := range explanations {
		o := testOptions(80)
		plain := renderExplanation(t, "table", name, o)
		o.Color = true
		if diff := cmp.Diff(plain, stripColor(renderExplanation(t, "table", name, o))); diff != "" {
			t.Errorf("%s: colour changes the text (-plain +coloured):\n%s", name, diff)
		}
	}
}

// TestParseExplainOutput: invalid values of -o give an error that lists the valid ones.
func TestParseExplainOutput(t *testing.T) {
	for value, want := range map[string]string{
		"xml":           "want one of table, wide, json, yaml, jsonpath=TEMPLATE",
		"json=":         "has no file name",
		"jsonpath":      "needs an argument",
		"jsonpath={.x":  "jsonpath template",
		"custom-column": "unknown output format",
	} {
		if _, err := ExplainFormats().Parse(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
	if o, err := ExplainFormats().Parse("json=out.json"); err != nil || o.File != "out.json" {
		t.Errorf("json=out.json: %+v, %v", o, err)
	}
	if o, err := ExplainFormats().Parse("yaml=-"); err != nil || o.File != "" {
		t.Errorf("yaml=-: %+v, %v", o, err)
	}
}
