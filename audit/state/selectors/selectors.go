// Package selectors parses the selectors of pools.
package selectors

import (
	"slices"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	"github.com/projectcalico/calico/libcalico-go/lib/selector/parser"
)

// Selector is a parsed selector; sel is nil for an empty selector, which matches everything.
type Selector struct {
	sel *selector.Selector
	// Err is why the text cannot be parsed. Such a selector matches nothing.
	Err error
}

// Parse parses a selector of labels. An empty text matches everything.
func Parse(text string) *Selector {
	if text == "" {
		return &Selector{}
	}
	sel, err := selector.Parse(text)
	return &Selector{sel, err}
}

// Matches reports whether the selector matches an object with these labels.
func (s *Selector) Matches(labels map[string]string) bool {
	return s.Err == nil && (s.sel == nil || s.sel.Evaluate(labels))
}

// MatchesAll reports whether the selector matches everything, regardless of how it is written.
func (s *Selector) MatchesAll() bool {
	return s.Err == nil && (s.sel == nil || matchesAll(s.sel.Root()))
}

func matchesAll(n parser.Node) bool {
	switch n := n.(type) {
	case *parser.AllNode, *parser.GlobalNode:
		return true
	case *parser.AndNode:
		return !slices.ContainsFunc(n.Operands, func(o parser.Node) bool { return !matchesAll(o) })
	case *parser.OrNode:
		return slices.ContainsFunc(n.Operands, matchesAll)
	}
	return false
}
