package cli

import (
	"context"
	"runtime"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// evaluation is what a source holds, with what the checks found in it.
type evaluation struct {
	state  *state.State
	result *audit.Result
}

// evaluate reads a source and runs checks. What must be confirmed
// is read a second time, and withheld where that fails.
func evaluate(ctx context.Context, from source.Reader, checks []*audit.Check, grace graceFlag, progress *view.ProgressLine) (*evaluation, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	opts := grace.options()
	progress.Show("checking")
	st := state.New(snapshot, opts)
	result := audit.Run(st, checks)
	again := result.NeedsConfirmation()
	if len(again) == 0 {
		return &evaluation{st, result}, nil
	}
	snapshot = decode.Without(snapshot, again)
	second, failed := rereadAlone(ctx, from, snapshot, again)
	if ctx.Err() != nil {
		return nil, exit.Unread(ctx.Err())
	}
	if failed != nil { // what the first reading had is not held
		if second, err = from.Read(ctx); err != nil {
			return nil, err
		}
		st = state.New(second, opts)
		return &evaluation{st, audit.Run(st, checks).Unconfirmed(failed)}, nil
	}
	st = state.New(second, opts)
	return &evaluation{st, audit.Confirm(result, audit.Run(st, checks))}, nil
}

// rereadAlone reads resources again into rest, which is the snapshot before without them
// ([decode.Without]). That snapshot is not held any more, nor what was made of it: of
// 5,000 nodes each is some 150 MB.
func rereadAlone(ctx context.Context, from source.Reader, rest *blocks.Snapshot, again []blocks.Resource) (*blocks.Snapshot, error) {
	runtime.GC() // else the heap grows to twice what was there before it is collected
	return from.Reread(ctx, rest, again)
}

func (j *evaluation) report() *audit.Report { return audit.NewReport(j.state, j.result) }
