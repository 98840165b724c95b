package view

import "github.com/calico-audit/calico-audit/audit"

// style is a colour; the zero style is none.
type style string

// The styles are the SGR parameters of ECMA-48. Severity is the one thing that
// is coloured, and it is written in words as well.
const (
	plain         style = ""
	styleCritical style = "1;31"
	styleError    style = "31"
	styleWarning  style = "33"
	styleInfo     style = "36"
)

func severityStyle(s audit.Severity) style {
	switch s {
	case audit.Critical:
		return styleCritical
	case audit.Error:
		return styleError
	case audit.Warning:
		return styleWarning
	case audit.Info:
		return styleInfo
	}
	return plain
}

func (p *page) paint(s string, st style) string {
	if !p.color || st == plain || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}
