package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// PreviewUndo says what [Undo] would do now, without writing: what it would take
// back is [Planned].
func PreviewUndo(ctx context.Context, f *JournalFile, r Reader) (*Result, error) {
	u := &undoing{run: newRun(r, nil, 0, ApplyOptions{}), file: f}
	if err := u.begin(ctx); err != nil {
		return nil, err
	}
	res := u.result()
	for _, id := range f.Written() {
		step, act := u.action(id)
		o := act.outcome()
		o.Step, o.At = *step, audit.Time{Time: u.state.Cluster.TakenAt}
		res.Outcomes = append(res.Outcomes, o)
	}
	return res, nil
}

// Undo takes back what a journal says was written, the newest first, as far as
// that does no harm now. It puts nothing back under anybody: an affinity returns
// only if its node exists and nobody has claimed its block, an address only if it is
// still free. A step that its run left half-done is finished where it cannot be
// taken back; if it can be neither, it is [Skipped], and named. Its own writes go
// into a journal of their own.
//
// An error means that nothing was written.
func Undo(ctx context.Context, f *JournalFile, r Reader, w Writer, back Restorer, j *Journal, opts ApplyOptions) (*Result, error) {
	u := &undoing{run: newRun(r, j, 0, opts), file: f, writer: w, back: back}
	if err := u.begin(ctx); err != nil {
		return nil, err
	}
	res := u.result()
	for _, id := range f.Written() {
		step := u.stepOf(id)
		res.Outcomes = append(res.Outcomes, u.each(ctx, step, func() Outcome { return u.step(ctx, id) }))
	}
	if j.Exists() {
		res.Journal = j.Path()
	}
	return res, nil
}

// undoing takes back the steps of one journal.
type undoing struct {
	*run
	file   *JournalFile
	writer Writer
	back   Restorer
}

func (u *undoing) begin(ctx context.Context) error {
	if u.file.Plan == nil {
		return fmt.Errorf("%w: this is the journal of an undo, which is not undone in its turn: make a new plan", ErrNoPlan)
	}
	if err := u.read(ctx); err != nil {
		return err
	}
	if err := u.sameCluster(u.file.Cluster.GUID); err != nil {
		return err
	}
	if u.state.Info.Locked {
		return fmt.Errorf("%w: IPAM must stand still until it is unlocked", ErrLocked)
	}
	u.guid = u.file.Cluster.GUID
	return nil
}

func (u *undoing) result() *Result {
	return &Result{
		APIVersion: audit.APIVersion, Kind: ResultKind, Cluster: reportCluster(u.state), Undo: true,
		StartedAt: audit.Time{Time: u.state.Cluster.TakenAt}, Outcomes: []Outcome{}, Gaps: gapTexts(u.state),
	}
}

// stepOf returns a step of the plan, or as much of one as the journal tells.
func (u *undoing) stepOf(id string) *Step {
	if s := u.file.Step(id); s != nil {
		return s
	}
	return &Step{ID: id}
}

// step takes one step back, or finishes one that cannot be.
func (u *undoing) step(ctx context.Context, id string) Outcome {
	finished := ""
	for try, writes := 0, 0; ; {
		err := u.judgeAnew(ctx, id)
		if err != nil {
			return u.unread(ctx, err)
		}
		_, act := u.action(id)
		if act.do == nil && finished != "" && !act.halfDone {
			return Outcome{Status: Done, Code: CodeFinished, Reason: finished}
		}
		if act.do == nil {
			return act.outcome()
		}
		if ctx.Err() != nil {
			return interrupted()
		}
		o, err := u.write(ctx, id, act)
		switch {
		case errors.Is(err, ErrChanged) && try+1 < maxDerivations:
			try++
			continue
		case err != nil || o.Code != CodeFinished || o.Status != Done || writes >= maxCompletions:
			return o
		case finished == "": // the rest of the step is in hand now
			var cancel context.CancelFunc
			ctx, cancel = inHand(ctx)
			defer cancel()
		}
		finished, writes = act.what, writes+1
	}
}

// judgeAnew reads again what the verdict on a step rests on.
func (u *undoing) judgeAnew(ctx context.Context, id string) error {
	if u.stepOf(id).Kind == SetStrictAffinity { // it acts on every node at once
		if err := u.reread(ctx); err != nil {
			return err
		}
	}
	return u.look(ctx, func() []blocks.Ref { return u.refs(id) })
}

func (u *undoing) write(ctx context.Context, id string, act undoAction) (Outcome, error) {
	if err := u.journal.Start(id); err != nil {
		u.stop(SkipJournal, err.Error())
		return skip(SkipJournal, "nothing was written: %v", err), nil
	}
	hand, cancel := inHand(ctx)
	defer cancel()
	err := act.do(hand)
	if errors.Is(err, ErrChanged) {
		return skip(SkipChanged, "%v", err), err
	}
	defer u.wroteStep(ctx)
	if readErr := u.refresh(hand, u.refs(id)); readErr != nil {
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it is not known whether it was written: %v", errors.Join(err, readErr))}, nil
	}
	_, now := u.action(id)
	switch {
	case act.code == CodeFinished && err == nil: // what is left of the step is judged next
		return Outcome{Status: Done, Code: CodeFinished, Reason: act.what}, nil
	case now.do == nil && !open(now.status):
		return Outcome{Status: Done, Reason: act.what}, nil
	case err != nil:
		return Outcome{Status: Failed, Reason: err.Error()}, nil
	}
	return Outcome{Status: Failed, Reason: "it was written, but reading again does not show it: " + now.what}, nil
}

// refs are the objects of a step: what its kind rests on, those it wrote, and its
// block; and what says whether anything may be written at all.
func (u *undoing) refs(id string) []blocks.Ref {
	r := newRefs(u.state)
	if s := u.stepOf(id); kindOf(s.Kind) != nil {
		for _, ref := range kindOf(s.Kind).refs(u.state, s) {
			r.add(ref)
		}
	}
	for _, c := range u.file.Changes(id) {
		r.one(c.Resource, c.Name)
		if s := storedObject(c.Before); c.Resource == blocks.Affinities && s.Spec.CIDR != "" { // its block, and who else claims that
			cidr := prefixOf(audit.Subject{CIDR: s.Spec.CIDR})
			r.block(cidr)
			r.claims(cidr, s.Spec.Node)
			r.node(s.Spec.Node)
		}
	}
	return r.out
}

// undoAction is what is to be done about one step: a write, or nothing.
type undoAction struct {
	do func(ctx context.Context) error
	// what says what the write does or, without one, why there is none.
	what   string
	status Status
	// code is why there is no write, or [CodeFinished] for one that finishes the step.
	code SkipCode
	// halfDone is true if there is no write though the step is half-done.
	halfDone bool
}

func (a *undoAction) outcome() Outcome {
	if a.do != nil {
		return Outcome{Status: Planned, Code: a.code, Reason: a.what}
	}
	return Outcome{Status: a.status, Code: a.code, Reason: a.what}
}

func open(s Status) bool { o := Outcome{Status: s}; return o.Open() }

func takeBack(do func(context.Context) error, format string, args ...any) undoAction {
	return undoAction{do: do, what: fmt.Sprintf(format, args...)}
}

func nothingToUndo(s Status, format string, args ...any) undoAction {
	return undoAction{status: s, what: fmt.Sprintf(format, args...)}
}

func cannotUndo(code SkipCode, format string, args ...any) undoAction {
	return undoAction{status: Skipped, code: code, what: fmt.Sprintf(format, args...)}
}

// action decides what is to be done about a step, from the state as last read.
func (u *undoing) action(id string) (*Step, undoAction) {
	s, act := u.judge(id)
	kind := kindOf(s.Kind)
	if act.do == nil {
		return s, u.named(s, act)
	}
	if kind == nil {
		return s, act
	}
	if code, why := closed(u.state, u.file.Plan.Request, kind); code != "" {
		return s, u.named(s, cannotUndo(SkipCode(code), "%s", why))
	}
	return s, act
}

// judge is action without the gate, and without naming what is left half-done.
func (u *undoing) judge(id string) (*Step, undoAction) {
	s := u.stepOf(id)
	changes := u.file.Changes(id)
	for _, c := range changes {
		if g, missing := u.state.Missing(c.Resource); missing {
			return s, cannotUndo(SkipCode(RefusedNotRead), "not judged: %s", g)
		}
		for _, g := range u.state.Unreadable(c.Resource) {
			if g.Name == c.Name {
				return s, cannotUndo(SkipCode(RefusedNotRead), "not judged: %s", g)
			}
		}
	}
	if act := u.finish(s, changes); act.do != nil || act.status != "" {
		return s, act
	}
	if u.file.fate(id) == unwritten {
		return s, u.unwritten(s, changes)
	}
	switch s.Kind {
	case ReleaseBlock:
		return s, u.releaseBlock(s, changes)
	case DeleteAffinity:
		return s, u.deleteAffinity(s, changes)
	case RestoreAffinity:
		return s, u.restoreAffinity(s)
	case ReleaseIP:
		return s, u.releaseIP(s, changes)
	case DeleteHandle:
		return s, u.deleteHandle(s, changes)
	case FixHandleCount:
		return s, u.fixHandleCount(changes)
	case FinishDelete:
		return s, nothingToUndo(NotNeeded, "it was marked deleted before, and Calico itself would have removed it at its next reading")
	case SetStrictAffinity:
		return s, u.setStrictAffinity(changes)
	}
	return s, cannotUndo(SkipUnknown, "this version knows no steps of kind %q, or the journal's plan lacks the step", s.Kind)
}
