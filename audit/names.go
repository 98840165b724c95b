package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// Names returns the distinct results of name for the objects, sorted.
func Names[T any](bs []*T, who func(*T) string) blocks.Names {
	out := make([]string, 0, len(bs))
	for _, b := range bs {
		out = append(out, who(b))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
