package page

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// shownFindings is how many findings of a group stand in the page as text. The page
// makes more out of its data when they are asked for.
const shownFindings = 25

// runbookBase is where the documentation of the checks is kept.
const runbookBase = "https://github.com/calico-audit/calico-audit/blob/main/audit/CHECKS.md#"

// group is the findings of one check and severity.
type group struct {
	Severity state.Severity
	Check    string
	Lead     string // what the first of them says
	Why      string
	Docs     []view.CheckPart
	Runbook  string
	Count    int
	Open     bool
	Shown    []finding
	// First is the place in the report of the first of them; they follow each other.
	First int
}

// finding is a finding as it is shown.
type finding struct {
	ID, Message string
	// Commands are the next step. If it is Manual, the first is an instruction, and the
	// others are the commands of which that speaks.
	Commands []string
	Manual   bool
	Evidence []state.Evidence
	// Subject is what the map can show of it: an address, a CIDR or a node; empty if
	// it shows nothing.
	Subject string
}

func newGroups(r *audit.Report, o Options) (out []group) {
	first, explained := 0, view.Explained(r.Diagnoses...)
	for _, findings := range view.Groups(r.Findings) {
		f := &findings[0]
		g := group{
			Severity: f.Severity, Check: f.Check, Lead: view.Message(f), Why: o.Why(f.Check), Count: len(findings), First: first, Open: f.Severity >= state.Error,
		}
		if c, err := checks.All.ByID(f.Check); err == nil {
			g.Runbook, g.Docs = runbookBase+view.CheckAnchor(f.Check), view.NewCheckDocs([]*audit.Check{c}).Checks[0].Parts()
		}
		for i := range findings[:min(len(findings), shownFindings)] {
			g.Shown = append(g.Shown, newFinding(&findings[i], explained, o))
		}
		first += len(findings)
		out = append(out, g)
	}
	return out
}

// newFinding returns a finding as it is shown. What to do about those that diagnoses
// explain ([view.Explained]), the diagnoses say.
func newFinding(f *audit.Finding, explained map[string]bool, o Options) finding {
	out := finding{ID: f.Fingerprint, Message: view.Message(f), Evidence: f.Evidence, Subject: showable(f.Subject)}
	if !explained[f.Fingerprint] {
		out.Manual = f.Fix.Kind == "manual"
		if f.Fix.Command != "" {
			out.Commands = o.commands(append([]string{f.Fix.Command}, f.Fix.Commands...))
		}
	}
	return out
}

// showable names what the map can show of a subject; empty if it shows nothing.
func showable(s state.Subject) string {
	switch s.Kind {
	case state.KindIP:
		return s.IP
	case state.KindBlock, state.KindAffinity:
		return s.CIDR
	case state.KindNode:
		return s.Name
	}
	return ""
}

// BlankFinding is what the page's script fills in for findings that are not shown as
// text.
func (c *content) BlankFinding() finding {
	return finding{Subject: " ", Commands: []string{" "}, Evidence: []state.Evidence{{}}}
}
