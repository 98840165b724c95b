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

// KindOf returns a kind, of which a run that carries steps out asks the following; nil for one that this version does not know.
func KindOf(k Kind) *StepKind {
	if i := rank(k); i >= 0 {
		return kinds[i]
	}
	return nil
}

// Whole reports whether a step rests on the whole cluster, which is read right before.
func (k *StepKind) Whole(s *Step) bool { return k.whole != nil && k.whole(s) }

// Restores reports whether the kind takes back what was made for a while: it is tried
// whatever ended the run.
func (k *StepKind) Restores() bool { return k.restores }

// Refs are the objects that a step rests on: read again right before and right after.
func (k *StepKind) Refs(st *state.State, s *Step) []blocks.Ref {
	r := newRefs(st)
	k.refs(r, s)
	return r.out
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
	for _, name := range k.exact {
		if was, is := planned.Guard(name), now.Guard(name); was != is {
			return fmt.Sprintf("its %s was %s in the plan and is %s now", name, orNotThere(was), orNotThere(is))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.loose)) {
		if !k.loose[name](st, planned, now) {
			return fmt.Sprintf("its %s was %s in the plan, which does not hold any more", name, orNotThere(planned.Guard(name)))
		}
	}
	return ""
}

// Turn is what a step is told that may have to wait until it may be carried out.
type Turn struct {
	*Site
	Plan *Plan
	// Waits is since when a step waits for other pods to be ready, by step ID.
	Waits map[string]time.Time
	// EvictTimeout is how long it waits at most.
	EvictTimeout time.Duration
	// Stands is how long a reservation must have stood; 0 is the default.
	Stands time.Duration
}

// Ready says from when on a step may be carried out, with why it waits, or why it must
// not be though the state gives reason for it; the zero values if at once.
func (k *StepKind) Ready(t *Turn, s *Step) (due time.Time, code RefusalCode, why string) {
	if k.ready == nil {
		return time.Time{}, "", ""
	}
	due, r := k.ready(t, s)
	return due, r.code, r.why
}

// CarryOut writes a step that was derived from exactly the site's state.
func (k *StepKind) CarryOut(ctx context.Context, on *Site, s *Step) error {
	switch {
	case k.act == nil:
		return k.do(ctx, on.Writer, on.State, s)
	case on.Workloads == nil:
		return errors.New("nothing was written: this run cannot change pods and nodes")
	}
	return k.act(ctx, on.Workloads, on.State, s)
}

// With names the object that a step shares with others of its kind, which are read and
// written together; "" for one by itself.
func (k *StepKind) With(s *Step) string {
	if k.with == nil {
		return ""
	}
	return k.with(s)
}

// CarryOutTogether is CarryOut for steps that share an object, with the error of each.
func (k *StepKind) CarryOutTogether(ctx context.Context, on *Site, steps []*Step) []error {
	return k.together(ctx, on.Writer, on.State, steps)
}

// Settles reports whether a step sets something off that has to come to its end.
func (k *StepKind) Settles() bool { return k.settled != nil }

// Settled reports whether what a step set off has come to its end, or for what it waits; an
// error ends the run.
func (k *StepKind) Settled(before, now *state.State, s *Step) (done bool, waits string, err error) {
	return k.settled(before, now, s)
}

// Verify returns nil if the state shows the whole outcome of a step, and otherwise what is
// wrong: a [LeftBehindError] where what the step is about is as it should be, and
// something of its protocol is left.
func (k *StepKind) Verify(st *state.State, s *Step) error { return k.verify(st, s) }

// VerifySince is Verify for a step that was derived from an earlier state: what is left
// that was so before is none of its doing, and becomes a remark.
func (k *StepKind) VerifySince(before, now *state.State, s *Step) (remark string, wrong error) {
	wrong = k.verify(now, s)
	var behind *LeftBehindError
	if errors.As(wrong, &behind) && k.asBefore != nil && k.asBefore(before, now, s) {
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

// Stands reports whether a step takes back what is there by a state.
func (s *Step) Stands(st *state.State) bool {
	k := KindOf(s.Kind)
	return k != nil && k.restores && k.verify(st, s) != nil
}
