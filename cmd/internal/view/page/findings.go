package page

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// shownFindings is the number of findings of a group that are rendered as text. The page's
// script renders more on demand.
const shownFindings = 25

// runbookBase is the URL of the checks' documentation.
const runbookBase = "https://github.com/calico-audit/calico-audit/blob/main/audit/CHECKS.md#"

// group is the findings of one check and severity.
type group struct {
	Severity state.Severity
	Check    string
	Lead     string // message of the first
	Why      string
	Docs     []view.CheckPart
	Runbook  string
	Count    int
	Open     bool
	Shown    []finding
	// First is the index in the report of the first finding; the others follow it.
	First int
}

// finding is a finding for display.
type finding struct {
	ID, Message string
	// Commands are the next step. If Manual is set, the first is an instruction, and the
	// others are its commands.
	Commands []string
	Manual   bool
	Evidence []state.Evidence
	// Subject is the part of the subject that the map can show: an address, a CIDR or a
	// node; may be empty.
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

// newFinding returns a finding for display. Findings in explained have no next step,
// because their diagnosis has one.
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

// showable returns the part of a subject that the map can show; may be "".
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

// BlankFinding is the template for findings that the page's script renders.
func (c *content) BlankFinding() finding {
	return finding{Subject: " ", Commands: []string{" "}, Evidence: []state.Evidence{{}}}
}
