package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// PreviewUndo returns what [Undo] would do now, without writing. Steps that it would revert are
// [Planned].
func PreviewUndo(ctx context.Context, f *journal.File, r repair.Reader) (*repair.Result, error) {
	x := newRun(r, nil, nil, 0, Options{})
	res, err := x.beginUndo(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, b := range x.toTakeBack(f) {
		m := b.Action()
		o := m.Outcome()
		o.Step, o.At = *b.Step, audit.Time{Time: x.State.Cluster.TakenAt}
		res.Outcomes = append(res.Outcomes, o)
	}
	return res, nil
}

// Undo reverts the writes that a journal records, the newest first, as far as that does no harm
// now. It takes nothing away from a new owner: an address is restored only if it is still free. If
// a half-done step cannot be reverted, it is finished; if neither is possible, it is [Skipped] and
// named. A step that only repaired damage is not reverted. Undo records its own writes in a journal
// of their own.
//
// An error means that nothing was written.
func Undo(ctx context.Context, f *journal.File, r repair.Reader, w repair.Writer, j *journal.Journal, opts Options) (*repair.Result, error) {
	x := newRun(r, w, j, 0, opts)
	res, err := x.beginUndo(ctx, f)
	if err != nil {
		return nil, err
	}
	all := x.toTakeBack(f)
	steps := slices.Clone(f.Plan.Steps)
	for _, b := range all {
		steps = append(steps, *b.Step)
	}
	release, err := x.alone(ctx, steps)
	if err != nil {
		return nil, err
	}
	defer release()
	for _, b := range all {
		res.Outcomes = append(res.Outcomes, x.each(ctx, b.Step, func(ctx context.Context) repair.Outcome { return b.takeBack(ctx) }))
	}
	if j.Exists() {
		res.Journal = j.Path()
	}
	return res, nil
}

// toTakeBack returns the steps of a run to revert. For each part of the run, these are the steps
// that wrote something, the newest first, and those with temporary changes still in place.
func (x *run) toTakeBack(f *journal.File) (out []*begun) {
	for _, part := range f.Parts() {
		for _, id := range part.Written() {
			out = append(out, x.begunStep(part, id, true))
		}
	}
	for _, part := range f.Parts() {
		for i := range part.Plan.Steps {
			s := &part.Plan.Steps[i]
			if planner.Stands(s, x.State) && !slices.ContainsFunc(out, func(b *begun) bool { return b.Step.ID == s.ID }) {
				out = append(out, x.begunStep(part, s.ID, true))
			}
		}
	}
	for _, b := range out {
		b.Prove()
	}
	return out
}

func (x *run) beginUndo(ctx context.Context, f *journal.File) (*repair.Result, error) {
	x.file = f
	if f.Plan == nil {
		return nil, fmt.Errorf("%w: this is the journal of an undo, and an undo cannot be undone: make a new plan", ErrNoPlan)
	}
	if err := x.open(ctx, f.Cluster.GUID); err != nil {
		return nil, err
	}
	res := x.result()
	res.Undo = true
	return res, nil
}

// takeBack reverts the step, or finishes it if it cannot be reverted.
func (b *begun) takeBack(ctx context.Context) repair.Outcome {
	finished := ""
	for changed, writes := 0, 0; ; {
		if err := b.reading(b.Kind, b.Step)(ctx, b.Refs); err != nil {
			return b.unread(ctx, err)
		}
		m := b.Action()
		switch {
		case m.Do != nil || finished == "" || m.HalfDone:
		case m.Open() && m.Code != repair.SkipHarm: // something may depend on the object that is not restored
			m.What = fmt.Sprintf("%s; it was left half-done, and is finished", m.What)
		default:
			return repair.Outcome{Status: repair.Done, Code: repair.CodeFinished, Reason: finished}
		}
		if m.Do == nil {
			return m.Outcome()
		}
		o, err := b.write(ctx, m)
		switch {
		case errors.Is(err, repair.ErrChanged) && changed+1 < maxDerivations:
			changed++
			continue
		case o.Code != repair.CodeFinished || writes >= maxCompletions:
			return o
		case finished == "": // from here on, the rest of the step is finished in any case
			var cancel context.CancelFunc
			ctx, cancel = inHand(ctx)
			defer cancel()
		}
		finished, writes = m.What, writes+1
	}
}

// write makes one write of an undo, and returns its outcome.
func (b *begun) write(ctx context.Context, m repair.Move) (repair.Outcome, error) {
	stopped, unread, err := b.send(ctx, m)
	switch {
	case stopped != nil:
		return *stopped, nil
	case errors.Is(err, repair.ErrChanged):
		return skip(repair.SkipChanged, "%v", err), err
	}
	defer b.wroteStep()
	if unread != nil {
		return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("it is not known whether it was written: %v", errors.Join(err, unread))}, nil
	}
	now := b.Action()
	var kept *repair.KeptCordonError
	switch {
	case errors.As(err, &kept) && !now.Open():
		return repair.Outcome{Status: repair.Done, Reason: kept.Error()}, nil
	case m.Code == repair.CodeFinished && err == nil: // the rest of the step is evaluated next
		return repair.Outcome{Status: repair.Done, Code: repair.CodeFinished, Reason: m.What}, nil
	case !now.Open():
		return repair.Outcome{Status: repair.Done, Reason: m.What}, nil
	case err != nil:
		return repair.Outcome{Status: repair.Failed, Reason: err.Error()}, nil
	}
	return repair.Outcome{Status: repair.Failed, Reason: "it was written, but reading again does not show it: " + now.What}, nil
}
