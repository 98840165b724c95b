package audit

import (
	"cmp"
	"slices"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Diagnosis groups findings with a common cause, and holds the remedies of that cause.
type Diagnosis struct {
	// ID names the cause, such as "shortage/pods-v4". It stays the same while the cause
	// lasts.
	ID string `json:"id"`
	// Severity is the highest severity of the findings.
	Severity state.Severity `json:"severity"`
	// Message describes the problem in one sentence.
	Message string `json:"message"`
	// Findings are the fingerprints of the findings, in the order of the report.
	Findings []string `json:"findings"`
	// Remedies are alternatives, the preferred one first.
	Remedies []remedies.Remedy `json:"remedies"`
}

// diagnose groups findings by their root. Informational findings need no remedy, and a
// single finding already has its own, unless its root says otherwise.
func diagnose(st *state.State, findings []Finding) []Diagnosis {
	byRoot := map[string][]*Finding{}
	for i := range findings {
		if f := &findings[i]; f.Root != "" {
			byRoot[f.Root] = append(byRoot[f.Root], f)
		}
	}
	out := []Diagnosis{}
	for id, fs := range byRoot {
		root := remedies.Of(st).Root(id)
		if root == nil || len(fs) < 2 && !root.Alone {
			continue
		}
		d := Diagnosis{ID: id}
		for _, f := range fs {
			d.Severity = max(d.Severity, f.Severity)
			d.Findings = append(d.Findings, f.Fingerprint)
		}
		if d.Severity <= state.Info {
			continue
		}
		d.Message, d.Remedies = root.Message(len(fs)), remedies.Of(st).Now(root.Remedies())
		out = append(out, d)
	}
	sortDiagnoses(out)
	return out
}

// DiagnosesWith returns a copy of the diagnoses with the commands of their remedies
// rewritten by write.
func DiagnosesWith(ds []Diagnosis, write func(string) string) []Diagnosis {
	ds = slices.Clone(ds)
	for i := range ds {
		ds[i].Remedies = slices.Clone(ds[i].Remedies)
		for j := range ds[i].Remedies {
			m := &ds[i].Remedies[j]
			m.Commands = commandsWith(m.Commands, write)
		}
	}
	return ds
}

// FindingsWith returns a copy of the findings with their commands rewritten by write.
func FindingsWith(fs []Finding, write func(string) string) []Finding {
	fs = slices.Clone(fs)
	for i := range fs {
		fix := &fs[i].Fix
		fix.Command, fix.Commands = write(fix.Command), commandsWith(fix.Commands, write)
	}
	return fs
}

func commandsWith(commands []string, write func(string) string) []string {
	commands = slices.Clone(commands)
	for i, c := range commands {
		commands[i] = write(c)
	}
	return commands
}

func sortDiagnoses(ds []Diagnosis) {
	slices.SortFunc(ds, func(a, b Diagnosis) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.ID, b.ID))
	})
}
