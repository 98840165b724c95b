package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/law"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// repairs runs one plan after another without a pause until the context ends, each with
// its own journal. Some runs are interrupted, and some are killed at a write.
func (w *World) repairs(ctx context.Context, id int, proxy *FaultProxy, r *rand.Rand) {
	t, err := w.tool(proxy, r)
	if err != nil {
		w.troubles.add(err)
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		journal := filepath.Join(w.Journals, fmt.Sprintf("repair-%d-%d.journal", id, n))
		request := w.request(r)
		switch {
		case id == 0 && r.IntN(8) > 0:
			request = repair.Request{EmptyBlocks: true} // like the CronJob, but without a pause
		case id == 1 && r.IntN(2) > 0:
			request = repair.Request{UnrecordedIPs: true} // in a plan of everything, the pods end before their turn
		}
		w.repair(ctx, t, proxy, journal, request, r)
	}
}

// repair performs one run, from planning to the last step.
func (w *World) repair(ctx context.Context, t *tool, proxy *FaultProxy, journal string, request repair.Request, r *rand.Rand) {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := t.read(run, w.Grace)
	if err != nil {
		w.made.add("repair: not read")
		pause(ctx, 200*time.Millisecond)
		return
	}
	plan := planOf(st, request, w.Grace)
	if len(plan.Steps) == 0 {
		w.made.add("repair: nothing to do")
		pause(ctx, 200*time.Millisecond)
		return
	}
	w.made.add("repair: plan held to the law")
	for _, worse := range law.New(st).Worse(afterwards(st, plan), plan) {
		w.tb.Errorf("after the plan that %s is the journal of, %s", journal, worse)
	}
	opts := apply.Options{Wait: r.IntN(4) > 0}
	switch r.IntN(6) {
	case 0:
		if t.killed(run, proxy, 1+r.IntN(8), r.IntN(2) == 0, plan, journal) {
			w.made.add("repair: killed")
			if r.IntN(2) == 0 {
				w.resume(ctx, t, journal)
			}
		}
		return
	case 1: // interrupted
		stop := time.AfterFunc(time.Duration(r.IntN(4000))*time.Millisecond, cancel)
		defer stop.Stop()
	case 2: // applied after the cluster has changed
		pause(ctx, time.Duration(r.IntN(6000))*time.Millisecond)
	}
	res, err := t.apply(run, plan, journal, opts)
	switch {
	case err != nil:
		w.made.add("repair: not begun")
		if !errors.Is(err, apply.ErrUnread) && ctx.Err() == nil && run.Err() == nil {
			w.troubles.add(fmt.Errorf("a repair could not begin: %w", err))
		}
		pause(ctx, 200*time.Millisecond)
	default:
		w.take(res)
		if r.IntN(8) == 0 {
			w.undo(ctx, t, journal)
		}
	}
}

// afterwards is the state that a plan leaves if nothing else happens.
func afterwards(st *state.State, plan *repair.Plan) *state.State {
	x := repair.NewPretence(st.Snapshot)
	for i := range plan.Steps {
		planner.KindOf(plan.Steps[i].Kind).Pretend(x, &plan.Steps[i])
	}
	return state.New(x.Done(), state.Options{Grace: max(st.Grace, 1)})
}

// undo undoes a whole run, as far as that is still harmless.
func (w *World) undo(ctx context.Context, t *tool, journal string) {
	res, err := t.undo(ctx, journal)
	if err != nil {
		w.made.add("repair: not undone")
		return
	}
	for _, o := range res.Outcomes {
		w.made.add(fmt.Sprintf("undo %s: %s", o.Step.Kind, o.Status))
	}
}

// request returns the request of a run: usually all repairs, with or without a limit of
// steps, and sometimes a single kind or the setting.
func (w *World) request(r *rand.Rand) repair.Request {
	q := everything
	switch r.IntN(10) {
	case 0, 1:
		q = repair.Request{EmptyBlocks: true}
	case 2:
		q = repair.Request{OrphanAffinities: true, MissingAffinities: true}
	case 3:
		q = repair.Request{LeakedIPs: true}
	case 5:
		q = repair.Request{DeadNodes: true}
	case 4:
		strict := r.IntN(3) == 0
		q.StrictAffinity = &strict
	}
	q.MaxSteps = []int{0, 5, 10, 20}[r.IntN(4)]
	q.ObserveTwice = r.IntN(8) == 0
	return q
}

// resume continues a killed run.
func (w *World) resume(ctx context.Context, t *tool, journal string) {
	res, err := t.resume(ctx, journal, apply.Options{})
	if err != nil {
		w.made.add("repair: not resumed")
		return
	}
	w.made.add("repair: resumed")
	w.take(res)
}

// stepKinds lists the kinds of step in a storm.
var stepKinds = []repair.Kind{
	repair.ReleaseBlock, repair.DisownBlock, repair.CreateHandle, repair.RecordIP, repair.DeleteAffinity, repair.RestoreAffinity, repair.ReleaseIP,
	repair.DeleteHandle, repair.FixHandleCount, repair.FinishDelete, repair.SetStrictAffinity,
}

// lacks returns the steps that repairs did not complete during the storm, if the storm
// therefore proves too little. Every storm needs an address that was recorded for another
// pod and then again for its user, and a long one a step of each kind.
func (w *World) lacks() string {
	var none []string
	if w.checker.Again() == 0 {
		none = append(none, string(repair.RecordIP)+" of an address recorded for another pod")
	}
	for _, k := range stepKinds {
		if w.For >= longStorm && w.made.get(fmt.Sprintf("%s: %s", k, repair.Done)) == 0 {
			none = append(none, string(k))
		}
	}
	return strings.Join(none, ", ")
}

// longStorm is the duration from which a storm must complete steps of every kind.
const longStorm = 5 * time.Minute

// take counts the results of steps by kind.
func (w *World) take(res *repair.Result) {
	for _, o := range res.Outcomes {
		w.made.add(fmt.Sprintf("%s: %s", o.Step.Kind, o.Status))
		if o.Status == repair.Failed {
			w.failures.add(fmt.Errorf("%s: %s", o.Step.ID, o.Reason))
		}
	}
}
