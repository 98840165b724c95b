package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestRemediesParse: for all states in the checks' test data, the command line accepts each
// calico-audit command in diagnoses and findings, and the command reads the same source. No
// command ends a pod, cordons a node or deletes objects without a plan.
func TestRemediesParse(t *testing.T) {
	files, err := filepath.Glob("../../../audit/checks/testdata/*/*.txt")
	more, _ := filepath.Glob("../../../audit/checks/testdata/diagnoses.txt")
	if files = append(files, more...); err != nil || len(files) < 20 {
		t.Fatalf("%d files of test data, %v", len(files), err)
	}
	options := view.Options{Program: "calico-audit", ReportArgs: "-f dump/"}
	seen := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, rest, _ := strings.Cut(part, "\n")
			drawn, _, _ := strings.Cut(rest, "-- want\n")
			if strings.HasPrefix(drawn, "unread ") {
				_, drawn, _ = strings.Cut(drawn, "\n")
			}
			s, err := statedsl.Parse(drawn)
			if err != nil {
				t.Fatalf("%s, %q: %v", file, name, err)
			}
			st := state.New(s, state.Options{})
			for _, c := range commandsOf(audit.NewReport(st, audit.Run(st, checks.All))) {
				if command := options.Command(c); !seen[command] {
					seen[command] = true
					if why := refuses(command); why != "" {
						t.Errorf("%s, %q: %s: %s", filepath.Base(file), name, command, why)
					}
				}
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d commands were seen", len(seen))
	}
}

// TestWaysOutParse: the flags of "calico-audit repair" in the ways out of error messages exist.
func TestWaysOutParse(t *testing.T) {
	seen := 0
	for _, m := range errortext.All {
		_, flags, named := strings.Cut(m.Do, "calico-audit repair ")
		if !named {
			continue
		}
		flags, _, _ = strings.Cut(flags, ")")
		for _, flag := range strings.Split(flags, ", ") {
			seen++
			if why := refuses("calico-audit repair -f dump/ " + flag); why != "" {
				t.Errorf("%s: %s: %s", m.ID, flag, why)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d flags were seen", seen)
	}
}

// commandsOf returns the commands of a report's remedies and of its findings' next steps.
func commandsOf(r *audit.Report) (out []string) {
	for _, d := range r.Diagnoses {
		for _, m := range d.Remedies {
			out = append(out, m.Commands...)
		}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Fix.Kind != "manual" {
			out = append(out, f.Fix.Command)
		}
		for _, m := range f.Remedies {
			out = append(out, m.Commands...)
		}
	}
	return out
}

// refuses explains why a command must not be printed; "" if it may.
func refuses(command string) string {
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output() // as it is when pasted
	words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(words) < 2 {
		return "no command line"
	}
	if words[0] != "calico-audit" {
		verbs := map[string][]string{"kubectl": {"get", "annotate", "api-resources"}, "calicoctl": {"get", "ipam"}}
		if !slices.Contains(verbs[words[0]], words[1]) {
			return "not one that only looks"
		}
		return ""
	}
	c, rest, err := NewRoot("calico-audit", genericiooptions.IOStreams{}).Find(words[1:])
	if err != nil {
		return err.Error()
	}
	if err := c.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err.Error()
	}
	if reads := c.Flags().Lookup("filename"); reads != nil && !reads.Changed {
		return "lost the source"
	}
	return ""
}
