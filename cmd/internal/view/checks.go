package view

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
)

// CheckDoc is the documentation of a check.
type CheckDoc struct {
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Severity string            `json:"severity"`
	Why      string            `json:"why"`
	Confirm  string            `json:"confirm,omitempty"`
	Misread  string            `json:"misread,omitempty"`
	Remedies []remedies.Remedy `json:"remedies"`
	Never    string            `json:"never,omitempty"`
	Verify   string            `json:"verify"`
	Requires []blocks.Resource `json:"needs"`
}

// CheckDocs is the documentation of several checks.
type CheckDocs struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Checks     []CheckDoc `json:"checks"`
}

// NewCheckDocs returns the documentation of checks.
func NewCheckDocs(checks []*audit.Check) CheckDocs {
	out := CheckDocs{APIVersion: audit.APIVersion, Kind: "CheckList", Checks: []CheckDoc{}}
	for _, c := range checks {
		out.Checks = append(out.Checks, CheckDoc{
			ID: c.ID, Title: c.Title, Severity: c.SeverityText(), Why: c.Why, Confirm: c.Confirm,
			Misread: c.Misread, Remedies: remedies.Prefer(c.Remedies), Never: c.Never, Verify: c.Verification(), Requires: append([]blocks.Resource{}, c.Requires...),
		})
	}
	return out
}

// CheckPart is a part of a check's documentation.
type CheckPart struct{ Title, Text string }

// Parts returns the non-empty parts of a check's documentation, in reading order.
func (c CheckDoc) Parts() (out []CheckPart) {
	requires := make([]string, len(c.Requires))
	for i, r := range c.Requires {
		requires[i] = string(r)
	}
	parts := []CheckPart{
		{"Severity", c.Severity},
		{"Why it matters", c.Why},
		{"How to confirm", c.Confirm},
		{"Often misread", c.Misread},
	}
	title := "What to do"
	for i := range c.Remedies {
		parts = append(parts, CheckPart{title, remedyText(&c.Remedies[i])})
		title = "Or"
	}
	for _, p := range append(parts, CheckPart{"What not to do", c.Never}, CheckPart{"How to verify", c.Verify}, CheckPart{"Reads", strings.Join(requires, ", ")}) {
		if p.Text != "" {
			out = append(out, p)
		}
	}
	return out
}

// remedyText describes a remedy with its commands, effect and risk.
func remedyText(r *remedies.Remedy) string {
	text := RemedyTitle(r)
	text = strings.ToUpper(text[:1]) + text[1:]
	if len(r.Commands) > 0 {
		text += " (" + strings.Join(r.Commands, ", then ") + ")"
	}
	text += ". Effect: " + r.Effect + "."
	if r.Risk != "none" {
		text += " Risk: " + r.Risk + "."
	}
	return text
}

// CheckAnchor returns the anchor of a check's section, as GitHub generates it from the
// check's ID as the heading.
func CheckAnchor(id string) string { return strings.ReplaceAll(id, "/", "") }

// CheckListFormats returns the formats of a list of checks. The table only shows title and
// severity.
func CheckListFormats() Formats[CheckDocs] { return checkFormats((*printer).checkList) }

// CheckFormats returns the formats of checks with their full documentation.
func CheckFormats() Formats[CheckDocs] { return checkFormats((*printer).checks) }

func checkFormats(table func(*printer, CheckDocs)) Formats[CheckDocs] {
	ids := func(d CheckDocs) (out []string) {
		for _, c := range d.Checks {
			out = append(out, c.ID)
		}
		return out
	}
	return slices.Concat(tables(table, "the checks, for people", "")[:1], DataFormats[CheckDocs]("the whole documentation"),
		Formats[CheckDocs]{{Name: "name", Help: "the IDs, one per line", Write: asLines(ids)}, tickets[CheckDocs]("checks")})
}

func (p *printer) checkList(d CheckDocs) {
	width := widest(d.Checks, func(c *CheckDoc) string { return c.ID })
	if !p.NoHeaders {
		p.say(pad("ID", width, false) + "  DESCRIPTION, SEVERITY")
	}
	for _, c := range d.Checks {
		p.wrap(pad(c.ID, width, false)+"  ", width+2, c.Title)
		p.wrap(strings.Repeat(" ", width+4), width+4, c.Severity)
	}
}

func (p *printer) checks(d CheckDocs) {
	for i, c := range d.Checks {
		if i > 0 {
			p.blank()
		}
		p.wrap("", 2, c.ID+": "+c.Title)
		for _, part := range c.Parts() {
			p.section(part.Title)
			p.wrap("  ", 2, part.Text)
		}
	}
}
