package apply

import (
	"context"
	"time"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// DefaultEvictTimeout is how long the eviction of one pod may take in all.
const DefaultEvictTimeout = 5 * time.Minute

// Options are the settings of [Run] and [Undo].
type Options struct {
	// Pace is the pause after each step that wrote something, and after all those that were
	// written together; 0 for none.
	Pace time.Duration
	// MaxSteps bounds the number of steps that write something; 0 for no bound.
	MaxSteps int
	// Wait waits for the second observation where one is due later, instead of
	// skipping the step.
	Wait bool
	// Resume is the journal of a run that broke off; nil for a fresh run.
	Resume *journal.File
	// Consents are those that are given now, for a plan that others may have been given for
	// before; nil for the plan's own.
	Consents *repair.Request
	// finish carries out only what Resume's run has left half-done.
	finish bool
	// Workloads evicts pods and cordons nodes; nil for plans that do neither.
	Workloads repair.Workloads
	// EvictTimeout is how long the eviction of one pod may take in all: until its budget allows
	// it, it has ended, and its replacement is ready; 0 is [DefaultEvictTimeout].
	EvictTimeout time.Duration
	// stands is how long a reservation must have stood; 0 is the default.
	stands time.Duration
	// Progress is called before each step, with an empty status, and after it; in
	// between, with an empty status and a reason, for what is waited for.
	Progress func(repair.Outcome)
	// Say is called with what the run waits for before its first step.
	Say func(string)
	// Waiting is called before a wait for the second observation.
	Waiting func(until time.Time)
	// Sleep waits; nil means a timer. It returns early with the context's error.
	Sleep func(ctx context.Context, d time.Duration) error
}
