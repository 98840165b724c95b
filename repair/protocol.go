package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Refs are the objects that a step rests on: read again right before and right after.
func (k *StepKind) Refs(st *state.State, s *Step) []blocks.Ref {
	r := NewRefs(st)
	k.AddRefs(r, s)
	return r.All
}

// Changed compares the guards of a step as planned with those of it as derived now, and
// says which does not hold any more; "" if all do.
func (k *StepKind) Changed(st *state.State, planned, now *Step) string {
	orNotThere := func(s string) string {
		if s == "" {
			return "not there"
		}
		return s
	}
	for _, name := range k.Exact {
		if was, is := planned.Guard(name), now.Guard(name); was != is {
			return fmt.Sprintf("its %s was %s in the plan and is %s now", name, orNotThere(was), orNotThere(is))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Loose)) {
		if !k.Loose[name](st, planned, now) {
			return fmt.Sprintf("its %s was %s in the plan, which does not hold any more", name, orNotThere(planned.Guard(name)))
		}
	}
	return ""
}

// Turn is what a step is told that may have to wait until it may be carried out.
type Turn struct {
	*Site
	Plan *Plan
	// Waits is since when the eviction of a step is under way, by step ID: it waits for other
	// pods to be ready, for a budget, for its pod to end, and for the replacement.
	Waits map[string]time.Time
	// EvictTimeout is how long all of that may take.
	EvictTimeout time.Duration
	// Stands is how long a reservation must have stood; 0 is the default.
	Stands time.Duration
}

// Left returns how much of its time the eviction of a step has left, which begins to count with
// the first call.
func (t *Turn) Left(s *Step) time.Duration {
	now := t.State.Cluster.TakenAt
	if _, counts := t.Waits[s.ID]; !counts {
		t.Waits[s.ID] = now
	}
	return t.EvictTimeout - now.Sub(t.Waits[s.ID])
}

// Ready says from when on a step may be carried out, with why it waits, or why it must
// not be though the state gives reason for it; the zero values if at once.
func (k *StepKind) Ready(t *Turn, s *Step) (due time.Time, _ Reason) {
	if k.Due == nil {
		return time.Time{}, Reason{}
	}
	return k.Due(t, s)
}

// CarryOut writes a step that was derived from exactly the site's state.
func (k *StepKind) CarryOut(ctx context.Context, on *Site, s *Step) error {
	switch {
	case k.Act == nil:
		return k.Do(ctx, on.Writer, on.State, s)
	case on.Workloads == nil:
		return errors.New("nothing was written: this run cannot change pods and nodes")
	}
	return k.Act(ctx, on.Workloads, on.State, s)
}

// VerifySince is Verify for a step that was derived from an earlier state: what is left
// that was so before is none of its doing, and becomes a remark.
func (k *StepKind) VerifySince(before, now *state.State, s *Step) (remark string, wrong error) {
	wrong = k.Verify(now, s)
	var behind *LeftBehindError
	if errors.As(wrong, &behind) && k.AsBefore != nil && k.AsBefore(before, now, s) {
		return fmt.Sprintf("%v, as it was before: see --leaked-handles and --soft-deleted", wrong), nil
	}
	return "", wrong
}

// SameTarget reports whether two steps are about the same, as far as the plan says it. The
// node of an address may change without another address being meant.
func (s *Step) SameTarget(planned *Step) bool {
	now, was := s.Target, planned.Target
	return s.Kind == planned.Kind && now.Kind == was.Kind && now.CIDR == was.CIDR && now.IP == was.IP && now.Name == was.Name &&
		(now.Node == was.Node || now.Kind == state.KindIP)
}
