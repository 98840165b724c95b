package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
)

// PreviewUndo says what [Undo] would do now, without writing: what it would take
// back is [Planned].
func PreviewUndo(ctx context.Context, f *JournalFile, r Reader) (*Result, error) {
	x := newRun(r, nil, nil, 0, ApplyOptions{})
	res, err := x.beginUndo(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, id := range f.Written() {
		b := x.begunStep(f, id, true)
		m := b.action()
		o := m.outcome()
		o.Step, o.At = *b.step, audit.Time{Time: x.state.Cluster.TakenAt}
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
func Undo(ctx context.Context, f *JournalFile, r Reader, w Writer, j *Journal, opts ApplyOptions) (*Result, error) {
	x := newRun(r, w, j, 0, opts)
	res, err := x.beginUndo(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, id := range f.Written() {
		b := x.begunStep(f, id, true)
		res.Outcomes = append(res.Outcomes, x.each(ctx, b.step, func(ctx context.Context) Outcome { return b.takeBack(ctx) }))
	}
	if j.Exists() {
		res.Journal = j.Path()
	}
	return res, nil
}

func (x *run) beginUndo(ctx context.Context, f *JournalFile) (*Result, error) {
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
func (b *begun) takeBack(ctx context.Context) Outcome {
	finished := ""
	for changed, writes := 0, 0; ; {
		if err := b.lookAgain(ctx); err != nil {
			return b.unread(ctx, err)
		}
		m := b.action()
		if m.do == nil && finished != "" && !m.halfDone {
			return Outcome{Status: Done, Code: CodeFinished, Reason: finished}
		}
		if m.do == nil {
			return m.outcome()
		}
		o, err := b.write(ctx, m)
		switch {
		case errors.Is(err, ErrChanged) && changed+1 < maxDerivations:
			changed++
			continue
		case err != nil || o.Code != CodeFinished || o.Status != Done || writes >= maxCompletions:
			return o
		case finished == "": // the rest of the step is in hand now
			var cancel context.CancelFunc
			ctx, cancel = inHand(ctx)
			defer cancel()
		}
		finished, writes = m.what, writes+1
	}
}

// lookAgain reads again what the verdict on the step rests on.
func (b *begun) lookAgain(ctx context.Context) error {
	if b.kind == nil {
		return b.look(ctx, b.refs)
	}
	return b.kind.reading(b.run, b.step)(ctx, b.refs)
}

// write is one write of an undo, with what became of it.
func (b *begun) write(ctx context.Context, m move) (Outcome, error) {
	stopped, unread, err := b.send(ctx, m)
	switch {
	case stopped != nil:
		return *stopped, nil
	case errors.Is(err, ErrChanged):
		return skip(SkipChanged, "%v", err), err
	}
	defer b.wroteStep(ctx)
	if unread != nil {
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it is not known whether it was written: %v", errors.Join(err, unread))}, nil
	}
	now := b.action()
	switch {
	case m.code == CodeFinished && err == nil: // what is left of the step is judged next
		return Outcome{Status: Done, Code: CodeFinished, Reason: m.what}, nil
	case now.do == nil && !open(now.status):
		return Outcome{Status: Done, Reason: m.what}, nil
	case err != nil:
		return Outcome{Status: Failed, Reason: err.Error()}, nil
	}
	return Outcome{Status: Failed, Reason: "it was written, but reading again does not show it: " + now.what}, nil
}
