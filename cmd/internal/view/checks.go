package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// CheckDoc is the documentation of a check as data.
type CheckDoc struct {
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Severity string            `json:"severity"`
	Why      string            `json:"why"`
	Confirm  string            `json:"confirm,omitempty"`
	Misread  string            `json:"misread,omitempty"`
	Fix      string            `json:"fix"`
	Never    string            `json:"never,omitempty"`
	Verify   string            `json:"verify"`
	Needs    []blocks.Resource `json:"needs"`
}

// CheckDocs is the documentation of checks as data.
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
			ID: c.ID, Title: c.Title, Severity: c.Severity, Why: c.Why, Confirm: c.Confirm,
			Misread: c.Misread, Fix: c.Fix, Never: c.Never, Verify: c.Verification(), Needs: append([]blocks.Resource{}, c.Needs...),
		})
	}
	return out
}

// CheckFormats are the formats of a list of checks.
var CheckFormats = []string{"table", "json", "yaml", "name", "markdown"}

// WriteChecks writes checks in one of [CheckFormats]. As a table it is a line per
// check, or with full set their whole documentation.
func WriteChecks(w io.Writer, format string, checks []*audit.Check, full bool, o Options) error {
	switch format {
	case "json":
		return WriteJSON(w, NewCheckDocs(checks))
	case "yaml":
		return WriteYAML(w, NewCheckDocs(checks))
	case "markdown":
		return WriteChecksMarkdown(w, checks)
	case "name":
		for _, c := range checks {
			if _, err := fmt.Fprintln(w, c.ID); err != nil {
				return err
			}
		}
		return nil
	case "table":
		p := newPage(o)
		if full {
			for i, c := range checks {
				if i > 0 {
					p.blank()
				}
				checkText(p, c)
			}
		} else {
			checkList(p, checks, o)
		}
		return p.writeTo(w)
	}
	return fmt.Errorf("unknown output format %q: want one of %s", format, strings.Join(CheckFormats, ", "))
}

// checkList writes for each check when it fires and how bad that is.
func checkList(p *page, checks []*audit.Check, o Options) {
	idWidth := 0
	for _, c := range checks {
		idWidth = max(idWidth, displayWidth(c.ID))
	}
	if !o.NoHeaders {
		p.line(span{text: pad("ID", idWidth, false) + "  FIRES WHEN, AND HOW BAD IT IS"})
	}
	for _, c := range checks {
		p.wrap(pad(c.ID, idWidth, false)+"  ", idWidth+2, c.Title)
		p.wrap(strings.Repeat(" ", idWidth+4), idWidth+4, c.Severity)
	}
}

// checkText writes the documentation of a check.
func checkText(p *page, c *audit.Check) {
	p.wrap("", 2, c.ID+": "+c.Title)
	for _, part := range checkParts(c) {
		p.blank()
		p.line(span{text: part.title})
		p.wrap("  ", 2, part.text)
	}
}

type checkPart struct{ title, text string }

// checkParts returns a check's documentation in the order in which it is read;
// parts that say nothing are left out.
func checkParts(c *audit.Check) []checkPart {
	var out []checkPart
	for _, p := range []checkPart{
		{"Severity", c.Severity},
		{"Why it matters", c.Why},
		{"How to see it", c.Confirm},
		{"Often misread", c.Misread},
		{"What to do", c.Fix},
		{"What not to do", c.Never},
		{"How to verify", c.Verification()},
		{"Needs to read", needs(c.Needs)},
	} {
		if p.text != "" {
			out = append(out, p)
		}
	}
	return out
}

func needs(rs []blocks.Resource) string {
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
