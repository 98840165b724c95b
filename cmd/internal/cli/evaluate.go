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
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// evaluation is the state of a source with the results of checks.
type evaluation struct {
	state  *state.State
	result *audit.Result
}

// evaluate reads a source and runs checks. Findings that need confirmation are read a
// second time; if that fails, they are withheld.
func evaluate(ctx context.Context, from source.Reader, checks []*audit.Check, grace graceFlag, progress *terminal.Progress) (*evaluation, error) {
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
	if failed != nil { // the first snapshot is no longer complete: read everything again
		if second, err = from.Read(ctx); err != nil {
			return nil, err
		}
		st = state.New(second, opts)
		return &evaluation{st, audit.Run(st, checks).Unconfirmed(failed)}, nil
	}
	st = state.New(second, opts)
	return &evaluation{st, audit.Confirm(result, audit.Run(st, checks))}, nil
}

// rereadAlone reads resources again into rest, the previous snapshot without them
// ([decode.Without]). The caller must not keep the previous snapshot or its State: for
// 5,000 nodes each takes about 150 MB.
func rereadAlone(ctx context.Context, from source.Reader, rest *blocks.Snapshot, again []blocks.Resource) (*blocks.Snapshot, error) {
	runtime.GC() // otherwise the heap doubles before the next collection
	return from.Reread(ctx, rest, again)
}

func (j *evaluation) report() *audit.Report { return audit.NewReport(j.state, j.result) }
