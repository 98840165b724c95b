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

// PreviewUndo says what [Undo] would do now, without writing: what it would take
// back is [Planned].
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

// Undo takes back what a journal says was written, the newest first, as far as
// that does no harm now. It puts nothing back under anybody: an address returns only
// if it is still free. A step that its run left half-done is finished where it cannot
// be taken back; if it can be neither, it is [Skipped], and named. What only put
// damage right stays so. Its own writes go into a journal of their own.
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

// toTakeBack are the steps of a run to take back: those that wrote something, the newest
// first, of each of its parts, and those that take back what stands still.
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
		return nil, fmt.Errorf("%w: this is the journal of an undo, which is not undone in its turn: make a new plan", ErrNoPlan)
	}
	if err := x.open(ctx, f.Cluster.GUID); err != nil {
		return nil, err
	}
	res := x.result()
	res.Undo = true
	return res, nil
}

// takeBack takes the step back, or finishes it where it cannot be.
func (b *begun) takeBack(ctx context.Context) repair.Outcome {
	finished := ""
	for changed, writes := 0, 0; ; {
		if err := b.reading(b.Kind, b.Step)(ctx, b.Refs); err != nil {
			return b.unread(ctx, err)
		}
		m := b.Action()
		switch {
		case m.Do != nil || finished == "" || m.HalfDone:
		case m.Open() && m.Code != repair.SkipHarm: // somebody may miss what is not restored
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
		case err != nil || o.Code != repair.CodeFinished || o.Status != repair.Done || writes >= maxCompletions:
			return o
		case finished == "": // the rest of the step is in hand now
			var cancel context.CancelFunc
			ctx, cancel = inHand(ctx)
			defer cancel()
		}
		finished, writes = m.What, writes+1
	}
}

// write is one write of an undo, with what became of it.
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
	case m.Code == repair.CodeFinished && err == nil: // what is left of the step is evaluated next
		return repair.Outcome{Status: repair.Done, Code: repair.CodeFinished, Reason: m.What}, nil
	case now.Do == nil && !now.Open():
		return repair.Outcome{Status: repair.Done, Reason: m.What}, nil
	case err != nil:
		return repair.Outcome{Status: repair.Failed, Reason: err.Error()}, nil
	}
	return repair.Outcome{Status: repair.Failed, Reason: "it was written, but reading again does not show it: " + now.What}, nil
}
