package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// The colours on terminals: for severities, and for incomplete data in the colour of a
// warning. Words always say the same.
const (
	styleCritical style = "1;97;41" // white on red, so that it differs from an error on terminals without bold
	styleError    style = "31"
	styleWarning  style = "33"
	styleInfo     style = "36"
)

// Look defines the appearance of a severity in all outputs: the words for one and several
// findings, and the colours on terminals, on pages as text and as the fill of blocks, and
// in Grafana by name.
type Look struct {
	Severity   state.Severity
	one, many  string
	style      style
	Text, Fill Shades
	Grafana    string
}

// Shades is a CSS colour for light and dark backgrounds.
type Shades struct{ Light, Dark string }

// Looks are the appearances of all severities, the highest first. After a change, run "make
// generate" to update the pictures and the dashboard.
var Looks = []Look{
	{state.Critical, "critical", "critical", styleCritical, Shades{"#a10024", "#ff8f9d"}, Shades{"#a10024", "#ff5c72"}, "red"},
	{state.Error, "error", "errors", styleError, Shades{"#b23c00", "#ffa168"}, Shades{"#dd6b20", "#ee8340"}, "orange"},
	{state.Warning, "warning", "warnings", styleWarning, Shades{"#7a5800", "#e8bf5a"}, Shades{"#e0b13a", "#d4a93c"}, "yellow"},
	{state.Info, "info", "info", styleInfo, Shades{"#3a5a80", "#9dbde4"}, Shades{"#8fa9c9", "#5f7ba0"}, "blue"},
}

// styleOf returns the colour of a severity; "" if it is invalid.
func styleOf(s state.Severity) style {
	for _, x := range Looks {
		if x.Severity == s {
			return x.style
		}
	}
	return ""
}

// severitySpan returns a severity's name as the heading of a finding.
func severitySpan(s state.Severity) span { return span{strings.ToUpper(s.String()), styleOf(s)} }

// SeverityCount is the number of findings with a severity, in words: "2 errors".
type SeverityCount struct {
	Severity state.Severity
	Text     string
}

// CountSeverities counts findings by severity, the highest first, without severities that
// have none.
func CountSeverities(c audit.FindingCounts) (out []SeverityCount) {
	for _, x := range Looks {
		if n := *c.Of(x.Severity); n > 0 {
			out = append(out, SeverityCount{x.Severity, fmt.Sprintf("%d %s", n, phrase.One(n, x.one, x.many))})
		}
	}
	return out
}

// SeverityCounts returns the counts in words, "1 critical, 2 errors"; "" if there are no
// findings.
func SeverityCounts(c audit.FindingCounts) string {
	var out []string
	for _, x := range CountSeverities(c) {
		out = append(out, x.Text)
	}
	return strings.Join(out, ", ")
}
