package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// judgement is what a source holds, with what the checks found in it.
type judgement struct {
	state  *audit.State
	result *audit.Result
	// unconfirmed are the gaps of a second reading that failed.
	unconfirmed []blocks.Gap
}

// judge reads a source and runs the checks; nil runs all. What must be confirmed
// is read a second time, and withheld where that fails.
func judge(ctx context.Context, from reader, checks []*audit.Check, grace time.Duration, progress *view.ProgressLine) (*judgement, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	opts := audit.Options{Grace: grace}
	if grace == 0 {
		opts.Grace = 1 // no grace at all; zero would mean the default
	}
	progress.Show("checking")
	state := audit.NewState(snapshot, opts)
	result := audit.Run(state, checks)
	again := result.NeedsConfirmation()
	if len(again) == 0 {
		return &judgement{state: state, result: result}, nil
	}
	second, err := from.Reread(ctx, snapshot, again)
	if ctx.Err() != nil {
		return nil, unreadError(ctx.Err())
	}
	if err != nil {
		j := &judgement{state: state, result: result.Withhold("the second reading that would confirm it failed")}
		for _, res := range again {
			j.unconfirmed = append(j.unconfirmed, blocks.Gap{Resource: res, Reason: fmt.Sprintf("the second reading failed: %v", err)})
		}
		return j, nil
	}
	state = audit.NewState(second, opts)
	return &judgement{state: state, result: audit.Confirm(result, audit.Run(state, checks))}, nil
}

// report makes the report. Where the second reading failed it says that it is not
// whole.
func (j *judgement) report() *audit.Report {
	rep := audit.NewReport(j.state, j.result)
	if len(j.unconfirmed) > 0 {
		rep.Gaps = append(rep.Gaps, j.unconfirmed...)
		rep.Complete = false
	}
	return rep
}
