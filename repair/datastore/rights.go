package datastore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// MissingRight is a right that the writer lacks.
type MissingRight struct {
	// Verb, Resource and Group have the meaning of RBAC's.
	Verb, Resource, Group string
	// Kinds are the kinds of step that require it.
	Kinds []repair.Kind
	// Reason is the datastore's reason; often empty.
	Reason string

	of blocks.Resource
}

// String returns the right in one line.
func (m MissingRight) String() string {
	var kinds []string
	for _, k := range m.Kinds {
		kinds = append(kinds, string(k))
	}
	what := strings.TrimSuffix(m.Resource+"."+m.Group, ".")
	if m.Resource == string(repair.Leases) {
		what += " in " + repair.LeaseNamespace
	}
	text := fmt.Sprintf("the right to %s %s (for %s)", m.Verb, what, strings.Join(kinds, ", "))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// MissingRights asks the datastores which rights are missing for steps of the given kinds, or for
// undoing them. An error means that this is unknown.
func (w *Writer) MissingRights(ctx context.Context, kinds []*repair.StepKind, undo bool) ([]MissingRight, error) {
	type right struct {
		ok     bool
		reason string
	}
	var out []MissingRight
	for _, need := range w.needed(kinds, undo) {
		have, err := read(ctx, w, need.of, func(ctx context.Context, s Store) (r right, err error) {
			r.ok, r.reason, err = s.Allowed(ctx, need.Verb, need.of)
			return r, err
		})
		if err != nil {
			return nil, fmt.Errorf("asking for the right to %s %s.%s: %w", need.Verb, need.Resource, need.Group, err)
		}
		if !have.ok {
			need.Reason = have.reason
			out = append(out, need)
		}
	}
	return out, nil
}

// needed returns the rights that the given kinds of step need, each once, sorted by resource.
func (w *Writer) needed(kinds []*repair.StepKind, undo bool) []MissingRight {
	needs := map[repair.Kind][]repair.Right{}
	for _, kind := range kinds {
		if needs[kind.Kind] = kind.Rights; undo {
			needs[kind.Kind] = kind.UndoRights
		}
	}
	sorted := slices.Sorted(maps.Keys(needs))
	var resources []blocks.Resource
	for _, kind := range sorted {
		for _, n := range needs[kind] {
			if !slices.Contains(resources, n.Resource) {
				resources = append(resources, n.Resource)
			}
		}
	}
	var out []MissingRight
	for _, r := range resources {
		for _, verb := range []string{"get", "list", "create", "update", "patch", "delete"} {
			need := MissingRight{Verb: verb, of: r}
			need.Resource, need.Group = rbacOf(r, w.traits.Group)
			for _, kind := range sorted {
				if slices.ContainsFunc(needs[kind], func(n repair.Right) bool { return n.Resource == r && slices.Contains(n.Verbs, verb) }) {
					need.Kinds = append(need.Kinds, kind)
				}
			}
			if len(need.Kinds) > 0 {
				out = append(out, need)
			}
		}
	}
	return out
}
