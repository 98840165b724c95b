package apply

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
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
	// restores is true while a step reverts a temporary change. Such a step neither pauses nor
	// counts.
	restores bool
	// lease is the right to move pods; nil for runs that move none.
	lease repair.Lease
	// ahead holds the steps that were carried out or evaluated together with an earlier one.
	ahead map[string]*settled
}

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

type applying struct {
	*run
	plan    *repair.Plan
	request repair.Request
	seen    map[string]bool
	// derived is when this run first derived a step, for plans that do not count as an observation.
	derived map[string]time.Time
	// ended holds the consolidations with a step that was not done, and that step's reason.
	ended map[string]string
	turn  *repair.Turn
	// filled holds the outcomes of cordons that became due before the current step. filling is true
	// while such a cordon is carried out.
	filled  []repair.Outcome
	filling bool
}

func skip(code repair.SkipCode, format string, args ...any) repair.Outcome {
	return repair.Outcome{Status: repair.Skipped, Code: code, Reason: fmt.Sprintf(format, args...)}
}

// maxFailures is the number of consecutive failures after which the run stops: if nothing can be
// written, trying every step does not help.
const maxFailures = 3

// settled is the outcome of a step before its turn.
type settled struct {
	repair.Outcome
	wrote bool
}

// propagationDelay is how long the objects of a step may take to agree. Another client that changes
// them at the same moment also writes one object after the other.
const propagationDelay = time.Second

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
