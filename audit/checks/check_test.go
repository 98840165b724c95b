package checks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestChecks runs every check on the states in its data file,
// testdata/checks/GROUP_NAME.txt, named after its Go file. The file lists cases:
//
//	== name of the case
//	the state (see internal/statedsl)
//	-- want
//	severity subject            a finding of this check, one per line, in order
//	~ text                      the finding's message, evidence or fix contains the text
//	!~ text                     … does not contain the text
//	skipped text                the check is skipped, or withholds a finding, for this reason
//
// If no line follows "-- want", the check must find nothing.
func TestChecks(t *testing.T) {
	for _, c := range checks.All {
		t.Run(c.ID, func(t *testing.T) {
			name := strings.NewReplacer("/", "_", "-", "_").Replace(c.ID)
			if _, err := os.Stat(name + ".go"); err != nil {
				t.Errorf("a check has a file of its name: %v", err)
			}
			fired, silent := false, false
			for _, x := range casesOf(t, "checks/"+name) {
				t.Run(x.name, func(t *testing.T) { runCase(t, c, x.text, x.want) })
				if strings.TrimSpace(x.want) == "" {
					silent = true
				} else {
					fired = true
				}
			}
			if !fired || !silent {
				t.Errorf("%s.txt needs a state that fires the check (has: %t) and a near miss that does not (has: %t)", name, fired, silent)
			}
		})
	}
}

// stateCase is a state of the test data, and the expected result.
type stateCase struct {
	file, name, text, want string
	unread                 []blocks.Resource // the kinds that are not read
}

// casesOf returns the states in the files of testdata that match a pattern.
func casesOf(t *testing.T, pattern string) (out []stateCase) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern+".txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data for %s: %v", pattern, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, text, _ := strings.Cut(text, "\n")
			text, want, ok := strings.Cut(text, "-- want\n")
			if !ok {
				t.Fatalf("%s: %q has no \"-- want\" line", file, name)
			}
			x := stateCase{file: filepath.Base(file), name: name, text: text, want: want}
			if unread, ok := strings.CutPrefix(x.text, "unread "); ok {
				unread, x.text, _ = strings.Cut(unread, "\n")
				x.unread = []blocks.Resource{blocks.Resource(unread)}
			}
			out = append(out, x)
		}
	}
	return out
}

func runCase(t *testing.T, c *audit.Check, text, want string) {
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r := audit.Run(state.New(snap, state.Options{}), []*audit.Check{c})
	var got, wanted []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Subject.ResourceName()))
		if f.Check != c.ID || f.Fingerprint == "" || f.Message == "" {
			t.Errorf("finding is not whole: %+v", f)
		}
		if !slices.Contains(c.Severities, f.Severity) {
			t.Errorf("the check does not list %s among its severities: %+v", f.Severity, f)
		}
	}
	at := -1
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		switch {
		case line == "":
		case strings.HasPrefix(line, "~ "), strings.HasPrefix(line, "!~ "):
			sign, text, _ := strings.Cut(line, "~ ")
			if at < 0 || at >= len(r.Findings) {
				t.Errorf("%q follows no finding", line)
			} else if all := allText(r.Findings[at]); strings.Contains(all, text) != (sign == "") {
				t.Errorf("finding %d: want %q, have\n%s", at+1, line, all)
			}
		case strings.HasPrefix(line, "skipped "):
			if all := fmt.Sprint(r.Skipped); !strings.Contains(all, strings.TrimPrefix(line, "skipped ")) {
				t.Errorf("want %q, have %s", line, all)
			}
		default:
			at++
			wanted = append(wanted, line)
		}
	}
	if !strings.Contains(want, "skipped ") && len(r.Skipped) > 0 {
		t.Errorf("skipped unexpectedly: %v", r.Skipped)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func allText(f audit.Finding) string {
	out := f.Message + "\n"
	for _, e := range f.Evidence {
		out += e.Name + ": " + e.Value + "\n"
	}
	return out + f.Fix.Kind + ": " + f.Fix.Command + "\n"
}

// TestChecksAreDocumented requires complete documentation of every check.
func TestChecksAreDocumented(t *testing.T) {
	for _, c := range checks.All {
		for name, text := range map[string]string{"Title": c.Title, "Severity": c.SeverityText(), "Why": c.Why, "Confirm": c.Confirm, "Never": c.Never} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s: no %s", c.ID, name)
			}
		}
		if len(c.Remedies) == 0 {
			t.Errorf("%s: no remedy", c.ID)
		}
		for _, r := range c.Remedies {
			if r.Title == "" || r.Effect == "" || r.Risk == "" || !r.Manual && !r.Repairs() && !r.Resumes() {
				t.Errorf("%s: the remedy %+v is neither a whole repair nor whole advice", c.ID, r)
			}
		}
		if len(c.Requires) == 0 {
			t.Errorf("%s: names nothing that it needs", c.ID)
		}
	}
}
