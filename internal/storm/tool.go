package storm

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// tool plans and applies repairs as the program does, with a client configuration.
type tool struct {
	config *rest.Config
	reader repair.Reader
	// heard is called with the state behind each plan, and the start of its reading. It
	// may be nil.
	heard func(st *state.State, begun time.Time)
}

// newTool returns a tool with host views of the machines.
func newTool(config *rest.Config, machines machines) (*tool, error) {
	reader, err := cluster.NewKubernetes(config, cluster.KubernetesOptions{})
	if err != nil {
		return nil, err
	}
	return &tool{config: config, reader: &viewedReader{Kubernetes: reader, machines: machines}}, nil
}

// everything requests all kinds of repair except strict affinity.
var everything = repair.Request{
	EmptyBlocks: true, OrphanAffinities: true, MissingAffinities: true, LeakedIPs: true, LeakedHandles: true, SoftDeleted: true, DeadNodes: true, UnrecordedIPs: true, MissingHandles: true,
}

// read reads the cluster. A zero grace becomes one nanosecond, because zero would mean
// the default.
func (t *tool) read(ctx context.Context, grace time.Duration) (*state.State, error) {
	begun := time.Now()
	s, err := t.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	st := state.New(s, state.Options{Grace: max(grace, 1)})
	if t.heard != nil {
		t.heard(st, begun)
	}
	return st, nil
}

func (t *tool) plan(ctx context.Context, request repair.Request, grace time.Duration) (*repair.Plan, error) {
	st, err := t.read(ctx, grace)
	if err != nil {
		return nil, err
	}
	return planOf(st, request, grace), nil
}

func planOf(st *state.State, request repair.Request, grace time.Duration) *repair.Plan {
	plan := planner.Build(st, request)
	plan.Grace = repair.Duration{Duration: grace}
	plan.Seal()
	return plan
}

// apply applies a plan with a new journal.
func (t *tool) apply(ctx context.Context, plan *repair.Plan, path string, opts apply.Options) (*repair.Result, error) {
	j, err := journal.Create(path, journal.Header{StartedAt: plan.CreatedAt, Cluster: plan.Cluster, Plan: plan})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	w, err := t.writer(plan, j)
	if err != nil {
		return nil, err
	}
	return apply.Run(ctx, plan, t.reader, w, j, opts)
}

// resume continues the plan of an interrupted run's journal.
func (t *tool) resume(ctx context.Context, path string, opts apply.Options) (*repair.Result, error) {
	file, err := journal.Read(path)
	if err != nil {
		return nil, err
	}
	j, err := journal.Resume(path, file.StartedAt)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	w, err := t.writer(file.Plan, j)
	if err != nil {
		return nil, err
	}
	opts.Resume = file
	return apply.Run(ctx, file.Plan, t.reader, w, j, opts)
}

// undo undoes the writes of a journal, with a journal of its own.
func (t *tool) undo(ctx context.Context, path string) (*repair.Result, error) {
	file, err := journal.Read(path)
	if err != nil {
		return nil, err
	}
	j, err := journal.Create(path+".undo", journal.Header{StartedAt: file.StartedAt, Cluster: file.Cluster, Undoes: path})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	w, err := t.writer(file.Plan, j)
	if err != nil {
		return nil, err
	}
	return apply.Undo(ctx, file, t.reader, w, j, apply.Options{})
}

// killed applies a plan and is killed before or after its k-th write. It reports whether
// it reached that write. The cluster does not see later actions of this process, and
// killed removes them from the journal.
func (t *tool) killed(ctx context.Context, proxy *FaultProxy, k int, after bool, plan *repair.Plan, path string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var written int64
	proxy.OnDeath(func() {
		if info, err := os.Stat(path); err == nil {
			written = info.Size()
		}
		cancel()
	})
	proxy.Die(k, after)
	_, _ = t.apply(ctx, plan, path, apply.Options{Wait: true, Sleep: sleepUnless(proxy)})
	proxy.OnDeath(nil)
	proxy.WaitIdle()
	if !proxy.Reset() {
		return false
	}
	return os.Truncate(path, written) == nil
}

// sleepUnless sleeps unless the proxy is dead, because a dead process does not wait.
func sleepUnless(proxy *FaultProxy) func(context.Context, time.Duration) error {
	return func(ctx context.Context, d time.Duration) error {
		if proxy.isDead() {
			d = 0
		}
		pause(ctx, d)
		return ctx.Err()
	}
}
