package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// The styles of terminals. Severity is coloured, and what is missing is, as a warning; both
// are written in words as well.
const (
	styleCritical style = "1;97;41" // white on red: terminals that have no bold show it apart from an error
	styleError    style = "31"
	styleWarning  style = "33"
	styleInfo     style = "36"
)

// Look is what outputs know of a severity: the words for one and several findings, and its
// colour, which no output has from elsewhere: on terminals, on pages as text and as the
// filling of blocks, and in Grafana by its name there.
type Look struct {
	Severity   state.Severity
	one, many  string
	style      style
	Text, Fill Shades
	Grafana    string
}

// Shades are a colour on light and on dark ground, as CSS has it.
type Shades struct{ Light, Dark string }

// Looks are those of all severities, the worst first. After a change, "make generate" writes
// the pictures and the dashboard.
var Looks = []Look{
	{state.Critical, "critical", "critical", styleCritical, Shades{"#a10024", "#ff8f9d"}, Shades{"#a10024", "#ff5c72"}, "red"},
	{state.Error, "error", "errors", styleError, Shades{"#b23c00", "#ffa168"}, Shades{"#dd6b20", "#ee8340"}, "orange"},
	{state.Warning, "warning", "warnings", styleWarning, Shades{"#7a5800", "#e8bf5a"}, Shades{"#e0b13a", "#d4a93c"}, "yellow"},
	{state.Info, "info", "info", styleInfo, Shades{"#3a5a80", "#9dbde4"}, Shades{"#8fa9c9", "#5f7ba0"}, "blue"},
}

// styleOf returns the colour of a severity; none for what is no severity.
func styleOf(s state.Severity) style {
	for _, x := range Looks {
		if x.Severity == s {
			return x.style
		}
	}
	return ""
}

// severitySpan is a severity's name as it heads a finding.
func severitySpan(s state.Severity) span { return span{strings.ToUpper(s.String()), styleOf(s)} }

// SeverityCount is how many findings a severity has, in words: "2 errors".
type SeverityCount struct {
	Severity state.Severity
	Text     string
}

// CountSeverities counts findings by severity, the worst first, and leaves those out
// that no finding has.
func CountSeverities(c audit.FindingCounts) (out []SeverityCount) {
	for _, x := range Looks {
		if n := *c.Of(x.Severity); n > 0 {
			out = append(out, SeverityCount{x.Severity, fmt.Sprintf("%d %s", n, phrase.One(n, x.one, x.many))})
		}
	}
	return out
}

// SeverityCounts counts findings in words, "1 critical, 2 errors"; empty for none.
func SeverityCounts(c audit.FindingCounts) string {
	var out []string
	for _, x := range CountSeverities(c) {
		out = append(out, x.Text)
	}
	return strings.Join(out, ", ")
}
