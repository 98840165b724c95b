package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// Reasons not to carry out a plan at all. Nothing has been written.
var (
	// ErrNoPlan: this version cannot read the plan.
	ErrNoPlan = errors.New("this is not a plan that can be applied")
	// ErrOtherCluster: the plan was made for another cluster, or the identity of one of the two is
	// unknown. This cannot be forced.
	ErrOtherCluster = errors.New("the plan is not for this cluster")
	// ErrLocked: Calico's datastore is locked.
	ErrLocked = errors.New("the datastore is locked")
	// ErrStage: the plan is a stage of a repair after a restore, and an earlier stage is not done.
	ErrStage = errors.New("it is not time for this plan")
	// ErrUnread: the cluster could not be read.
	ErrUnread = errors.New("the cluster could not be read")
)

// run is one run of a plan or an undo.
type run struct {
	*repair.Site // as of the last reading
	reader       repair.Reader
	journal      *journal.Journal
	// file is the journal that is continued or undone; nil for a fresh run.
	file  *journal.File
	opts  Options
	grace time.Duration

	guid  string    // GUID of the run's cluster
	first time.Time // time of the run's first complete reading
	whole time.Time // time of the last complete reading, by the API server's clock
	wrote int       // number of steps that wrote something
	// paces is true while the pause after a writing step is still due.
	paces bool
	// failures counts consecutive failures; stopped is why the run ends early.
	failures int
	stopped  *repair.Outcome
	// denied is true after the API server has refused the account twice, until it accepts it again.
	denied bool
	// began holds the consolidations with at least one write. sizes counts the steps of each,
	// except its reverting steps.
	began map[string]bool
	sizes map[string]int
	// restores is true while a step reverts a temporary change: without a pause, and not counted.
	restores bool
	// lease is the right to move pods; nil for runs that move none.
	lease repair.Lease
	// ahead holds the steps that were carried out or evaluated together with an earlier one.
	ahead map[string]*settled
}

// maxFailures is the number of consecutive failures after which the run stops: if nothing can be
// written, trying every step does not help.
const maxFailures = 3

func newRun(r repair.Reader, w repair.Writer, j *journal.Journal, grace time.Duration, opts Options) *run {
	if opts.Sleep == nil {
		opts.Sleep = sleep
	}
	if opts.Progress == nil {
		opts.Progress = func(repair.Outcome) {}
	}
	if opts.Say == nil {
		opts.Say = func(string) {}
	}
	if opts.Waiting == nil {
		opts.Waiting = func(time.Time) {}
	}
	if opts.EvictTimeout <= 0 {
		opts.EvictTimeout = DefaultEvictTimeout
	}
	return &run{Site: &repair.Site{Writer: w, Workloads: opts.Workloads}, reader: r, journal: j, file: opts.Resume, grace: grace, opts: opts, ahead: map[string]*settled{}, began: map[string]bool{}, sizes: map[string]int{}}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run carries out a plan, step by step in the plan's order, and returns the outcome of each step.
// From the plan it takes only the steps and their guards: it derives each step again from the
// present cluster. Every change is first recorded in the journal, which is the writer's
// [repair.Recorder].
//
// An error means that nothing was written and no step was tried: the plan is invalid or for another
// cluster, the cluster cannot be read, or the plan moves pods while another run does
// ([repair.ErrOtherRun]). When the context ends, Run finishes the current object and does not try
// the rest.
func Run(ctx context.Context, plan *repair.Plan, r repair.Reader, w repair.Writer, j *journal.Journal, opts Options) (*repair.Result, error) {
	x := newRun(r, w, j, plan.TrustedGrace(), opts)
	if err := x.begin(ctx, plan); err != nil {
		return nil, err
	}
	release, err := x.alone(ctx, plan.Steps)
	if err != nil {
		return nil, err
	}
	defer release()
	a := &applying{
		run: x, plan: plan, request: x.asked(plan), seen: map[string]bool{}, derived: map[string]time.Time{}, ended: map[string]string{},
		turn: &repair.Turn{Site: x.Site, Plan: plan, Waits: map[string]time.Time{}, EvictTimeout: x.opts.EvictTimeout, Stands: opts.stands},
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		k, g := planner.KindOf(s.Kind), s.Group()
		switch {
		case g == "" || k == nil:
		case k.Restores:
			x.began[g] = x.began[g] || planner.Stands(s, x.State)
		case x.sizes[g] == 0 && g != remedies.Rehoming:
			a.request.Chosen = cmp.Or(a.request.Chosen, g)
			fallthrough
		default:
			x.sizes[g]++
		}
	}
	// The plan's filters must not make a step disappear now.
	a.request.Pools, a.request.Nodes, a.request.IPs, a.request.Blocks, a.request.MaxSteps = nil, nil, nil, nil, 0
	a.observeAll()
	res := x.result()
	// Half-done steps come first, because steps that ended before them look wrong until they are
	// finished.
	for _, unfinished := range []bool{true, false} {
		for i := range plan.Steps {
			step := &plan.Steps[i]
			if unfinished != (x.file != nil && x.file.Log(step.ID).Unfinished) || opts.finish && !unfinished {
				continue
			}
			if a.seen[step.ID] && step.Conditional() {
				continue
			}
			o := x.each(ctx, step, func(ctx context.Context) repair.Outcome { return a.step(ctx, step) })
			a.heed(o)
			res.Outcomes, a.filled = append(append(res.Outcomes, a.filled...), o), nil
		}
	}
	if j.Exists() {
		res.Journal = j.Path()
	}
	return res, nil
}

func (x *run) begin(ctx context.Context, plan *repair.Plan) error {
	switch {
	case plan.APIVersion != audit.APIVersion || plan.Kind != repair.PlanKind:
		return fmt.Errorf("%w: it is a %q of %q", ErrNoPlan, plan.Kind, plan.APIVersion)
	case plan.CreatedAt.IsZero():
		return fmt.Errorf("%w: it does not state when it was made, which is the time of the first of two observations", ErrNoPlan)
	case plan.Grace.Duration < 0:
		return fmt.Errorf("%w: its grace is %s", ErrNoPlan, plan.Grace)
	}
	if err := x.open(ctx, plan.Cluster.GUID); err != nil {
		return err
	}
	if own := blocks.DatastoreEtcd; !plan.OfFiles() && (plan.Cluster.Datastore == own) != (x.State.Cluster.Datastore == own) {
		return fmt.Errorf("%w: only one of plan and cluster is of a Calico with its own etcd: make a new one", ErrNoPlan)
	}
	now := x.State.Cluster.TakenAt
	if now.IsZero() {
		return fmt.Errorf("%w: the API server's answers have no time", ErrUnread)
	}
	if plan.CreatedAt.After(now.Add(blocks.ClockSkew)) {
		return fmt.Errorf("%w: it was made at %s, and by the API server's clock it is %s now: make a new one",
			ErrNoPlan, plan.CreatedAt.String(), phrase.Time(now))
	}
	return x.inTime(ctx, plan)
}

// inTime returns an error if a stage before the plan's is not done. Only work that two readings
// show counts: kinds are read one after the other, so an object created in between may look like
// damage.
func (x *run) inTime(ctx context.Context, plan *repair.Plan) error {
	first := planner.Blockers(x.State, plan.Request)
	if len(first) == 0 {
		return nil
	}
	if err := x.read(ctx); err != nil {
		return err
	}
	both := slices.DeleteFunc(planner.Blockers(x.State, plan.Request), func(b planner.Blocker) bool {
		return !slices.ContainsFunc(first, func(f planner.Blocker) bool { return f.Stage == b.Stage && f.ID == b.ID })
	})
	if len(both) > 0 {
		return fmt.Errorf("%w: %s", ErrStage, planner.BlockersText(both))
	}
	return nil
}

// open reads the cluster, which must be the expected one and not locked.
func (x *run) open(ctx context.Context, made string) error {
	if err := x.read(ctx); err != nil {
		return err
	}
	if err := x.sameCluster(made); err != nil {
		return err
	}
	x.guid, x.first = made, x.State.Cluster.TakenAt
	if x.State.Info.Locked {
		return fmt.Errorf("%w: \"calicoctl datastore migrate lock\" was run, and IPAM must not change until the datastore is unlocked", ErrLocked)
	}
	return nil
}

// sameCluster compares the cluster that a plan or journal was made for with this one. Both
// identities must be known. If this cluster's identity could not be read, that is reported as a
// failed reading, not as another cluster.
func (x *run) sameCluster(made string) error {
	here := x.State.Cluster.GUID
	if here == "" && !x.State.Complete() {
		// A starting API server may not serve Calico's kinds yet.
		gap := blocks.Untolerated(x.State.Gaps)[0]
		if gap.Denied {
			return fmt.Errorf("%w: %w: %s", ErrUnread, blocks.ErrDenied, gap)
		}
		return fmt.Errorf("%w: %s", ErrUnread, gap)
	}
	switch {
	case made == "":
		return fmt.Errorf("%w: it does not name the cluster that it was made for (the ClusterInformation's GUID was not read)", ErrOtherCluster)
	case here == "":
		return fmt.Errorf("%w: this cluster cannot be identified (the ClusterInformation's GUID cannot be read)", ErrOtherCluster)
	case made != here:
		return fmt.Errorf("%w: it was made for %s, and this is %s", ErrOtherCluster, made, here)
	}
	return nil
}

// each carries out one step with do, unless the run has ended or the step was settled ahead, and
// records the outcome.
func (x *run) each(ctx context.Context, step *repair.Step, do func(context.Context) repair.Outcome) repair.Outcome {
	var o repair.Outcome
	kind := planner.KindOf(step.Kind)
	switch {
	case kind != nil && kind.Restores && (x.began[step.Group()] || planner.Stands(step, x.State)):
		x.opts.Progress(repair.Outcome{Step: *step})
		o = x.restore(ctx, do)
	case x.ahead[step.ID] != nil:
		x.opts.Progress(repair.Outcome{Step: *step})
		o = x.takeAhead(step)
	case x.stopped != nil:
		o = *x.stopped
	case ctx.Err() != nil:
		o = interrupted()
	case x.beyond(step):
		o = repair.Outcome{Status: repair.NotTried, Code: repair.SkipLimit, Reason: fmt.Sprintf("the limit of %d steps (--max-steps) is reached", x.opts.MaxSteps)}
		if x.wrote < x.opts.MaxSteps {
			o.Reason = fmt.Sprintf("%d steps belong together, and the limit is %d (--max-steps)", x.sizes[step.Group()], x.opts.MaxSteps)
		}
	default:
		x.opts.Progress(repair.Outcome{Step: *step})
		o = do(ctx)
	}
	o.Step, o.At = *step, audit.Time{Time: x.State.Cluster.TakenAt}
	x.count(o)
	if err := x.journal.End(o); err != nil {
		x.stop(repair.SkipJournal, err.Error())
	}
	x.opts.Progress(o)
	x.pace(ctx)
	return o
}

func interrupted() repair.Outcome {
	return repair.Outcome{Status: repair.NotTried, Code: repair.SkipInterrupted, Reason: "the run was interrupted before it reached this step"}
}

func (x *run) count(o repair.Outcome) {
	switch o.Status {
	case repair.Failed:
		if x.failures++; x.failures >= maxFailures {
			x.stop(repair.SkipStopped, fmt.Sprintf("the run stopped after %d failures in a row, the last: %s", x.failures, o.Reason))
		}
	case repair.Done, repair.Already:
		x.failures = 0
	default: // nothing was tried
	}
}

func (x *run) stop(code repair.SkipCode, reason string) {
	if x.stopped == nil {
		x.stopped = &repair.Outcome{Status: repair.NotTried, Code: code, Reason: reason}
	}
}

func (x *run) wroteStep() {
	if !x.restores {
		x.wrote++
		x.paces = true
	}
}

// pace pauses after a step that wrote something. Steps written together are all recorded in the
// journal before the pause.
func (x *run) pace(ctx context.Context) {
	if x.paces && len(x.ahead) == 0 {
		x.paces = false
		if x.opts.Pace > 0 {
			_ = x.opts.Sleep(ctx, x.opts.Pace) // the next step notices that the context ended
		}
	}
}

// result returns a result without outcomes.
func (x *run) result() *repair.Result {
	c := x.State.Cluster
	res := &repair.Result{
		APIVersion: audit.APIVersion, Kind: repair.ResultKind, StartedAt: audit.Time{Time: c.TakenAt}, Outcomes: []repair.Outcome{},
		Cluster: audit.ReportCluster{
			GUID: c.GUID, Datastore: c.Datastore, APIGroup: c.APIGroup, APIGroupReason: c.APIGroupReason,
			CalicoVersion: c.CalicoVersion, TakenAt: audit.Time{Time: c.TakenAt},
		},
	}
	for _, g := range blocks.Untolerated(x.State.Gaps) {
		res.Gaps = append(res.Gaps, g.String())
	}
	return res
}
