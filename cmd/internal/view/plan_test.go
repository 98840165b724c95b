package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/repair"
)

// plans and results are the names of the files under testdata/plans.
var (
	plans   = []string{"story", "strict", "empty", "many", "hostile"}
	results = []string{"result-mixed", "result-undo", "result-good", "result-hostile"}
)

func loadJSON(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "plans", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

func planOptions() Options {
	o := testOptions(80)
	o.Next = []NextStep{{Text: "Nothing was written. Apply it with:", Command: "calico-audit repair apply plan.json"}}
	return o
}

// renderPlan renders a plan or a result.
func renderPlan(t *testing.T, output, name string, o Options) string {
	t.Helper()
	if strings.HasPrefix(name, "result-") {
		r := new(repair.Result)
		loadJSON(t, name, r)
		o.Next = []NextStep{{Text: "To undo what can be undone:", Command: "calico-audit repair undo " + r.Journal}}
		return written(t, ResultFormats(), output, r, o)
	}
	p := new(repair.Plan)
	loadJSON(t, name, p)
	p.Seal()
	return written(t, PlanFormats(), output, p, o)
}

func TestPlanGolden(t *testing.T) {
	for _, name := range append(append([]string{}, plans...), results...) {
		for _, c := range []struct{ file, output string }{
			{"table.80", "table"}, {"wide.80", "wide"}, {"yaml", "yaml"}, {"name", "name"}, {"markdown", "markdown"},
			{"jsonpath", `jsonpath={range .steps[*]}{.kind} {.target.cidr}{"\n"}{end}{range .outcomes[*]}{.status}{"\n"}{end}`},
		} {
			t.Run(name+"."+c.file, func(t *testing.T) {
				golden(t, "plan."+name+"."+c.file, renderPlan(t, c.output, name, planOptions()))
			})
		}
	}
}

// TestManualCommandsReadTheSameSource: commands of calico-audit in manual steps can be
// pasted, and read the source of the plan.
func TestManualCommandsReadTheSameSource(t *testing.T) {
	p := &repair.Plan{Manual: []repair.Manual{{Order: 1, Action: "do it", Command: "calico-audit repair --consolidate", Then: []string{"calico-audit repair --rehome"}}}}
	for _, output := range []string{"table", "markdown"} {
		got := written(t, PlanFormats(), output, p, planOptions())
		got = strings.ReplaceAll(strings.ReplaceAll(got, "`", ""), "$ ", "")
		for _, want := range []string{"calico-audit repair -f dump/ --consolidate", "then calico-audit repair -f dump/ --rehome"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: not %q in\n%s", output, want, got)
			}
		}
	}
}

// TestPlanJSONIsWhole: "repair apply" reads the same plan that was written.
func TestPlanJSONIsWhole(t *testing.T) {
	for _, name := range plans {
		want, got := new(repair.Plan), new(repair.Plan)
		loadJSON(t, name, want)
		want.Seal()
		if err := json.Unmarshal([]byte(renderPlan(t, "json", name, Options{})), got); err != nil {
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

// TestPlanThatIsNoObservation: for a plan that was edited or made from files, no due time
// is shown, because apply would not accept it.
func TestPlanThatIsNoObservation(t *testing.T) {
	for _, output := range []string{"table", "markdown"} {
		for name, change := range map[string]func(*repair.Plan){
			"edited":    func(p *repair.Plan) { p.CreatedAt.Time = p.CreatedAt.Add(-time.Hour) },
			"made from": func(p *repair.Plan) { p.Cluster.Datastore = "files"; p.Seal() },
		} {
			p, out := new(repair.Plan), new(strings.Builder)
			loadJSON(t, "many", p)
			p.Seal()
			change(p)
			x, err := PlanFormats().Parse(output)
			if err == nil {
				err = x.Write(out, p, planOptions())
			}
			if text := strings.Join(strings.Fields(out.String()), " "); err != nil || !strings.Contains(text, "apply with --wait") || !strings.Contains(text, name) || strings.Contains(text, "not before") {
				t.Errorf("%s, %s (%v):\n%.800s", name, output, err, text)
			}
		}
	}
}

// TestPlanTextIsSafe: names in the cluster cannot put control characters into the output,
// or lines that look like another part of the plan.
func TestPlanTextIsSafe(t *testing.T) {
	for _, name := range []string{"hostile", "result-hostile"} {
		for _, output := range []string{"table", "wide", "name", "markdown"} {
			for i, line := range strings.Split(renderPlan(t, output, name, planOptions()), "\n") {
				if !isClean(line) {
					t.Errorf("%s %s, line %d is not safe to print: %q", name, output, i+1, line)
				}
				if strings.HasPrefix(line, "STEPS (9)") || strings.HasPrefix(line, "FAILED |") || strings.Contains(line, "<script>") && output == "markdown" {
					t.Errorf("%s %s, line %d was made up by a name: %q", name, output, i+1, line)
				}
			}
		}
	}
}

// TestPlanFitsTerminal: at 80 columns no line of the table is wider, except commands and
// single words.
func TestPlanFitsTerminal(t *testing.T) {
	for _, name := range append(append([]string{}, plans...), results...) {
		for i, line := range strings.Split(renderPlan(t, "table", name, planOptions()), "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "$ ") || strings.HasPrefix(line, "  calico-audit ") || !strings.Contains(text, " ") {
				continue
			}
			if w := displayWidth(line); w > 80 {
				t.Errorf("%s, line %d is %d columns wide: %q", name, i+1, w, line)
			}
		}
	}
}

// TestLongPlan: the table cuts lists of alike steps with a remark; wide does not.
func TestLongPlan(t *testing.T) {
	table, wide := renderPlan(t, "table", "many", planOptions()), renderPlan(t, "wide", "many", planOptions())
	if !strings.Contains(table, "STEPS (40)") || !strings.Contains(table, "and 30 more of release-ip (-o wide lists all)") {
		t.Errorf("the table does not say what it leaves out:\n%s", table)
	}
	for i := range 40 {
		if ip := fmt.Sprintf("release-ip 10.64.75.%d (", i); !strings.Contains(wide, ip) {
			t.Errorf("the wide table lacks %s", ip)
		}
	}
}

// TestParsePlanOutput: invalid values of -o give an error that lists the valid ones.
func TestParsePlanOutput(t *testing.T) {
	for value, want := range map[string]string{
		"xml":          "want one of table, wide, json, yaml, name, jsonpath=TEMPLATE, markdown",
		"markdown=":    "has no file name",
		"jsonpath":     "needs an argument",
		"jsonpath={.x": "jsonpath template",
	} {
		if _, err := PlanFormats().Parse(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
	if o, err := PlanFormats().Parse("markdown=ticket.md"); err != nil || o.File != "ticket.md" {
		t.Errorf("markdown=ticket.md: %+v, %v", o, err)
	}
}

// TestTemplateErrorBesideReports: as with reports, a template that cannot be applied to a
// plan or an explanation gives its own error, and nothing is written.
func TestTemplateErrorBesideReports(t *testing.T) {
	plan := new(repair.Plan)
	loadJSON(t, "story", plan)
	planOut, err := PlanFormats().Parse(`jsonpath={.kind}{.steps[?(@.id>3)].id}{.manual[?(@.action>3)].action}`)
	if err != nil {
		t.Fatal(err)
	}
	explainOut, err := ExplainFormats().Parse(`jsonpath={.kind}{.subjects[?(@.summary>3)].summary}`)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	for what, err := range map[string]error{
		"plan":        planOut.Write(&buf, plan, Options{}),
		"explanation": explainOut.Write(&buf, loadExplanation(t, explanations[0]), Options{}),
	} {
		var template *TemplateError
		if !errors.As(err, &template) {
			t.Errorf("%s: error %v, want a TemplateError", what, err)
		}
	}
	if buf.Len() > 0 {
		t.Errorf("written: %q", &buf)
	}
}

// TestUntriedStepsAreSaidOnce: an unreachable API server is reported once, with the number
// of the remaining steps.
func TestUntriedStepsAreSaidOnce(t *testing.T) {
	r := &repair.Result{Outcomes: []repair.Outcome{{Step: repair.Step{ID: "release-block:10.0.0.0/26"}, Status: repair.Done}}}
	for i := range 14 {
		r.Outcomes = append(r.Outcomes, repair.Outcome{Step: repair.Step{ID: fmt.Sprintf("release-block:10.0.%d.0/26", i+1)}, Status: repair.NotTried, Reason: "the API server is away"})
	}
	table := written(t, ResultFormats(), "table", r, testOptions(0))
	for text, want := range map[string]int{
		"the API server is away": 1, "not tried       14 steps\n": 1, "- release-block:10.0.10.0/26\n": 1, "10.0.11.0/26": 0,
		"… and 4 more (-o wide lists all)": 1, "Of 15 steps: 1 done, 14 not tried.": 1,
	} {
		if got := strings.Count(table, text); got != want {
			t.Errorf("%q stands there %d times, want %d, in:\n%s", text, got, want, table)
		}
	}
	if wide := written(t, ResultFormats(), "wide", r, testOptions(0)); !strings.Contains(wide, "- release-block:10.0.14.0/26\n") {
		t.Errorf("not every step is named in:\n%s", wide)
	}
}
