package view

import (
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// The styles. Severity is coloured, and what is missing is, as a warning; both are
// written in words as well. A page has its colours from page/assets/map.css.
const (
	styleCritical style = "1;97;41" // white on red: terminals that have no bold show it apart from an error
	styleError    style = "31"
	styleWarning  style = "33"
	styleInfo     style = "36"
)

// severities is what outputs know of each severity, the worst first: the words for one
// and several findings, and the colour.
var severities = []struct {
	severity  state.Severity
	one, many string
	style     style
}{
	{state.Critical, "critical", "critical", styleCritical},
	{state.Error, "error", "errors", styleError},
	{state.Warning, "warning", "warnings", styleWarning},
	{state.Info, "info", "info", styleInfo},
}

// styleOf returns the colour of a severity; none for what is no severity.
func styleOf(s state.Severity) style {
	for _, x := range severities {
		if x.severity == s {
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
func CountSeverities(s audit.Summary) (out []SeverityCount) {
	for _, x := range severities {
		if n := *s.Of(x.severity); n > 0 {
			out = append(out, SeverityCount{x.severity, Plural(n, x.one, x.many)})
		}
	}
	return out
}

// SeverityCounts counts findings in words, "1 critical, 2 errors"; empty for none.
func SeverityCounts(s audit.Summary) string {
	var out []string
	for _, c := range CountSeverities(s) {
		out = append(out, c.Text)
	}
	return strings.Join(out, ", ")
}
