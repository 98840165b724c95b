package view

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// WriteChecksMarkdown writes the documentation of checks as one Markdown page, a
// section per check. Links lead to a section by [CheckAnchor].
func WriteChecksMarkdown(w io.Writer, checks []*audit.Check) error {
	var b bytes.Buffer
	b.WriteString("# Checks\n\nWhat an audit looks for. `calico-audit checks ID` prints the same in a terminal.\n\n" +
		"| ID | fires when | severity |\n|---|---|---|\n")
	for _, c := range checks {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", c.ID, CheckAnchor(c.ID), markdown(c.Title), markdown(c.Severity))
	}
	for _, c := range checks {
		fmt.Fprintf(&b, "\n## %s\n\nFires when %s.\n", c.ID, markdown(c.Title))
		for _, p := range checkParts(c) {
			fmt.Fprintf(&b, "\n**%s.** %s\n", p.title, markdown(p.text))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// CheckAnchor returns the anchor of a check's section: what GitHub makes of a
// heading that is the check's ID.
func CheckAnchor(id string) string { return strings.ReplaceAll(id, "/", "") }

// markdown escapes what Markdown would take for markup.
var markdown = strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[").Replace
