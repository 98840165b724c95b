package view

import (
	"github.com/calico-audit/calico-audit/audit"
)

// htmlShown is how many findings of a group stand in the page as text. The page
// makes more out of its data when they are asked for.
const htmlShown = 25

// runbookBase is where the documentation of the checks is kept.
const runbookBase = "https://github.com/calico-audit/calico-audit/blob/main/audit/CHECKS.md#"

// htmlGroup is the findings of one check and severity.
type htmlGroup struct {
	ID       string
	Severity audit.Severity
	Check    string
	Lead     string // what the first of them says
	Why      string
	Docs     []docPart
	Runbook  string
	Count    int
	Open     bool
	Shown    []htmlFinding
	// First is the place in the report of the first of them; they follow each other.
	First int
}

type docPart struct{ Title, Text string }

// htmlFinding is a finding as it is shown.
type htmlFinding struct {
	ID, Message, Command string
	Manual               bool
	Evidence             []audit.Evidence
	// Subject is what the map can show of it: an address, a CIDR or a node; empty if
	// it shows nothing.
	Subject string
}

func htmlGroups(r *audit.Report, t *table) []htmlGroup {
	var out []htmlGroup
	first := 0
	for _, g := range groups(r) {
		f := g[0]
		h := htmlGroup{
			ID: "check-" + f.Severity.String() + "-" + CheckAnchor(f.Check), Severity: f.Severity, Check: f.Check, Lead: message(f),
			Why: t.Why(f.Check), Count: len(g), First: first, Open: f.Severity >= audit.Error,
		}
		if c, err := audit.All.ByID(f.Check); err == nil {
			h.Runbook = runbookBase + CheckAnchor(f.Check)
			for _, p := range checkParts(c) {
				h.Docs = append(h.Docs, docPart{p.title, p.text})
			}
		}
		for _, f := range g[:min(len(g), htmlShown)] {
			h.Shown = append(h.Shown, newHTMLFinding(f, t))
		}
		first += len(g)
		out = append(out, h)
	}
	return out
}

func newHTMLFinding(f *audit.Finding, t *table) htmlFinding {
	return htmlFinding{
		ID: f.Fingerprint, Message: message(f), Command: t.command(f.Fix.Command), Manual: f.Fix.Kind == "manual",
		Evidence: f.Evidence, Subject: shownSubject(f.Subject),
	}
}

// shownSubject names what the map can show of a subject.
func shownSubject(s audit.Subject) string {
	switch s.Kind {
	case audit.KindIP:
		return s.IP
	case audit.KindBlock, audit.KindAffinity:
		return s.CIDR
	case audit.KindNode:
		return s.Name
	}
	return ""
}

// Rest is how many findings are not shown as text.
func (g htmlGroup) Rest() int { return g.Count - len(g.Shown) }

// blankFinding is what the page's script fills in for the rest.
func (h *htmlPage) BlankFinding() htmlFinding {
	return htmlFinding{Subject: " ", Command: " ", Evidence: []audit.Evidence{{}}}
}
