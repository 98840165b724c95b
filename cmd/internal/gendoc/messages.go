package main

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// messages returns the section of CHECKS.md with all known error messages, and the README with its
// table of the common ones.
func messages() (section string, readme document, err error) {
	var all, common strings.Builder
	all.WriteString("\n## Error messages\n\nThe error messages about addresses that `calico-audit explain 'ERROR TEXT'` knows, with the checks\n" +
		"that find their cause. `explain` also finds a message inside other text.\n\n" +
		"| message | printed by | means | remedy | checks |\n|---|---|---|---|---|\n")
	common.WriteString("\n| error | command |\n|---|---|\n")
	for _, m := range errortext.All {
		var texts, checks []string
		for _, text := range m.Texts {
			texts = append(texts, code(errortext.Sample(text)))
		}
		for _, id := range m.Checks {
			checks = append(checks, fmt.Sprintf("[`%s`](#%s)", id, view.CheckAnchor(id)))
		}
		fmt.Fprintf(&all, "| %s | %s | %s | %s | %s |\n", strings.Join(texts, "<br>"), m.By, cell(m.Means), cell(m.Do), strings.Join(checks, ", "))
		if m.Common && len(m.Checks) > 0 {
			fmt.Fprintf(&common, "| %s | `calico-audit report --check %s` |\n", texts[0], strings.Join(m.Checks[:min(len(m.Checks), 2)], ","))
		}
	}
	readme.path = "README.md"
	err = readme.fill(`(?s)(<!-- errors: [^>]*-->\n).*?(<!-- end of errors -->)`, strings.ReplaceAll(common.String(), "$", "$$")+"\n", "place for the errors")
	return all.String(), readme, err
}

// code formats a text as code in a table's cell.
func code(text string) string {
	if strings.Contains(text, "`") {
		return "`` " + cell(text) + " ``"
	}
	return "`" + cell(text) + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
