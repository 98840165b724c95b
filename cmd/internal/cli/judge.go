package cli

import (
	"context"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// judgement is what a source holds, with what the checks found in it.
type judgement struct {
	state  *state.State
	result *audit.Result
}

// judge reads a source and runs the checks. What must be confirmed
// is read a second time, and withheld where that fails.
func judge(ctx context.Context, from reader, checks []*audit.Check, grace time.Duration, progress *view.ProgressLine) (*judgement, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	opts := state.Options{Grace: grace}
	if grace == 0 {
		opts.Grace = 1 // no grace at all; zero would mean the default
	}
	progress.Show("checking")
	st := state.New(snapshot, opts)
	result := audit.Run(st, checks)
	again := result.NeedsConfirmation()
	if len(again) == 0 {
		return &judgement{st, result}, nil
	}
	second, err := from.Reread(ctx, snapshot, again)
	if ctx.Err() != nil {
		return nil, unreadError(ctx.Err())
	}
	if err != nil {
		return &judgement{st, result.Unconfirmed(err)}, nil
	}
	st = state.New(second, opts)
	return &judgement{st, audit.Confirm(result, audit.Run(st, checks))}, nil
}

func (j *judgement) report() *audit.Report { return audit.NewReport(j.state, j.result) }
