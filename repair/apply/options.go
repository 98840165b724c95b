package apply

import (
	"context"
	"errors"
	"time"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// DefaultEvictTimeout limits the total time for the eviction of one pod.
const DefaultEvictTimeout = 5 * time.Minute

// Options are the settings of [Run] and [Undo].
type Options struct {
	// Pace is the pause after each step that wrote something, or after all steps that were written
	// together; 0 for none.
	Pace time.Duration
	// MaxSteps limits the number of steps that write something; 0 for no limit.
	MaxSteps int
	// Wait makes the run wait for a second observation that is due later, instead of skipping the
	// step.
	Wait bool
	// Resume is the journal of an interrupted run; nil for a fresh run.
	Resume *journal.File
	// Consents are the consents given for this run, which may differ from those that the plan was
	// made with; nil for the plan's own.
	Consents *repair.Request
	// finish restricts the run to the steps that Resume's run left half-done.
	finish bool
	// Workloads evicts pods and cordons nodes; nil for plans that do neither.
	Workloads repair.Workloads
	// EvictTimeout limits the total time for the eviction of one pod: until its budget allows it,
	// the pod has ended, and its replacement is ready; 0 means [DefaultEvictTimeout].
	EvictTimeout time.Duration
	// stands is the minimum age of a reservation; 0 means the default.
	stands time.Duration
	// Progress is called before each step, with an empty status, and after it. During a wait, it is
	// called with an empty status and the reason for waiting.
	Progress func(repair.Outcome)
	// Say is called with the reason for a wait before the first step.
	Say func(string)
	// Waiting is called before a wait for the second observation.
	Waiting func(until time.Time)
	// Sleep waits; nil means a timer. It returns early with the context's error.
	Sleep func(ctx context.Context, d time.Duration) error
}

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
