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

// Refs returns the objects that a step depends on. They are read again immediately before and after
// the step.
func (k *StepKind) Refs(st *state.State, s *Step) []blocks.Ref {
	r := NewRefs(st)
	k.AddRefs(r, s)
	return r.All
}

// Changed compares the guards of a planned step with those of the step derived now. It
// describes the first guard that no longer holds, or returns "".
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
			return fmt.Sprintf("its %s was %s in the plan, and has changed since", name, orNotThere(planned.Guard(name)))
		}
	}
	return ""
}

// Turn is the input of a step that may have to wait.
type Turn struct {
	*Site
	Plan *Plan
	// Waits holds the start of each eviction that is under way, by step ID. An eviction
	// waits for other pods to be ready, for a budget, for its pod to end, and for the
	// replacement.
	Waits map[string]time.Time
	// EvictTimeout limits the total of these waits.
	EvictTimeout time.Duration
	// Stands is how long a reservation must have existed; 0 means the default.
	Stands time.Duration
}

// Left returns the remaining time of a step's eviction. The time starts with the first
// call.
func (t *Turn) Left(s *Step) time.Duration {
	now := t.State.Cluster.TakenAt
	if _, counts := t.Waits[s.ID]; !counts {
		t.Waits[s.ID] = now
	}
	return t.EvictTimeout - now.Sub(t.Waits[s.ID])
}

// Ready returns when a step is due and why it waits, or the reason why it must not be
// done although the state calls for it. Zero values mean that the step is due immediately.
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

// VerifySince calls Verify for a step that was derived from an earlier state. If the
// remains already existed in that state, the step did not cause them, and they become a
// remark instead of an error.
func (k *StepKind) VerifySince(before, now *state.State, s *Step) (remark string, wrong error) {
	wrong = k.Verify(now, s)
	var behind *LeftBehindError
	if errors.As(wrong, &behind) && k.AsBefore != nil && k.AsBefore(before, now, s) {
		return fmt.Sprintf("%v, as it was before: see --leaked-handles and --soft-deleted", wrong), nil
	}
	return "", wrong
}

// SameTarget reports whether two steps have the same target by the fields of the plan.
// The node of an IP target is ignored, because it may change while the address stays the
// same.
func (s *Step) SameTarget(planned *Step) bool {
	now, was := s.Target, planned.Target
	return s.Kind == planned.Kind && now.Kind == was.Kind && now.CIDR == was.CIDR && now.IP == was.IP && now.Name == was.Name &&
		(now.Node == was.Node || now.Kind == state.KindIP)
}
