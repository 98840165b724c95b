package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// retries are the pauses between attempts to read. In total they are long enough for an API server
// to restart.
var retries = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second}

// inHand returns a context for finishing the current object.
func inHand(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), blocks.WriteTimeout)
}

// read reads the whole cluster.
func (x *run) read(ctx context.Context) error {
	s, err := x.reader.Read(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnread, err)
	}
	x.take(s)
	x.whole = s.Cluster.TakenAt
	if x.guid == "" {
		return nil
	}
	return x.sameCluster(x.guid) // the kubeconfig or the address may lead to another cluster meanwhile
}

// maxAge is the maximum age of a complete reading. The objects that decide about a step are read
// again for each step, but contradictions elsewhere, such as a pod on another node with an address
// of the block, are noticed only after this time.
const maxAge = 5 * time.Minute

// look reads the objects of a step again, or everything if the last complete reading is too old.
func (x *run) look(ctx context.Context, refs func() []blocks.Ref) error {
	if err := x.refreshAll(ctx, refs); err != nil || x.State.Cluster.TakenAt.Sub(x.whole) < maxAge {
		return err
	}
	return x.lookAtAll(ctx, refs)
}

// reading returns the function that reads a step's objects again before it is derived.
func (x *run) reading(kind *repair.StepKind, s *repair.Step) func(context.Context, func() []blocks.Ref) error {
	if kind != nil && kind.RestsOnAll != nil && kind.RestsOnAll(s) {
		return x.lookAtAll
	}
	return x.look
}

func (x *run) lookAtAll(ctx context.Context, refs func() []blocks.Ref) error {
	if err := x.reread(ctx); err != nil {
		return err
	}
	return x.refreshAll(ctx, refs)
}

func (x *run) take(s *blocks.Snapshot) {
	grace := x.grace
	if grace == 0 {
		grace = 1 // no grace at all; zero would mean the default
	}
	x.State = state.New(s, state.Options{Grace: grace})
	if x.journal != nil {
		x.journal.Clock(s.Cluster.TakenAt)
	}
}

func (x *run) refresh(ctx context.Context, refs []blocks.Ref) error {
	return x.insist(ctx, func() error {
		s, err := x.reader.Refresh(ctx, x.State.Snapshot, refs)
		if err == nil {
			x.take(s)
		}
		return err
	})
}

// insist retries a reading for a while if the API server does not respond.
func (x *run) insist(ctx context.Context, read func() error) error {
	for try := 0; ; try++ {
		err := read()
		denied := errors.Is(err, blocks.ErrDenied)
		again := !x.denied && try == 0 // a starting API server may refuse everyone for a moment
		x.denied = denied && !again
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case x.denied, try >= len(retries):
			return err
		}
		_ = x.opts.Sleep(ctx, retries[try]) // the next reading notices that the context ended
	}
}

// maxRefresh limits how often the objects of a step are read until they lead to no new objects: an
// address assigned to another pod leads to that pod.
const maxRefresh = 3

// errRestless means that the objects of a step kept leading to new objects.
var errRestless = errors.New("the objects that it depends on change faster than they can be read")

// refreshAll reads the objects of a step again, then the objects that these lead to. It returns
// errRestless if that does not end.
func (x *run) refreshAll(ctx context.Context, refs func() []blocks.Ref) error {
	read := map[blocks.Ref]bool{}
	for try := 0; ; try++ {
		all := refs()
		if !slices.ContainsFunc(all, func(r blocks.Ref) bool { return !read[r] }) {
			return nil
		}
		if try >= maxRefresh {
			return errRestless
		}
		for _, r := range all {
			read[r] = true
		}
		if err := x.refresh(ctx, all); err != nil {
			return err
		}
	}
}

func (x *run) reread(ctx context.Context) error {
	return x.insist(ctx, func() error { return x.read(ctx) })
}

// unread returns the outcome of a step whose objects could not be read. Nothing was written, and
// the run ends, because the next step would fail, too.
func (x *run) unread(ctx context.Context, err error) repair.Outcome {
	if ctx.Err() != nil {
		return interrupted()
	}
	if errors.Is(err, blocks.ErrDenied) {
		why := fmt.Sprintf("the run stopped: %v", err)
		if x.journal.Exists() {
			why += fmt.Sprintf("; with an account that has the rights, undo it: calico-audit repair undo %s", phrase.Arg(x.journal.Path()))
		}
		x.stop(repair.SkipUnread, why)
	}
	x.stop(repair.SkipUnread, fmt.Sprintf("the run stopped because the API server could not be read: %v", err))
	return repair.Outcome{Status: repair.Skipped, Code: repair.SkipUnread, Reason: fmt.Sprintf("its objects could not be read again: %v", err)}
}

// waitUntil waits until a time by the API server's clock, then reads everything.
func (x *run) waitUntil(ctx context.Context, due time.Time) error {
	x.opts.Waiting(due)
	for x.State.Cluster.TakenAt.Before(due) {
		d := max(due.Sub(x.State.Cluster.TakenAt), time.Second)
		if err := x.opts.Sleep(ctx, d); err != nil {
			return err
		}
		if err := x.reread(ctx); err != nil {
			return err
		}
	}
	return nil
}
