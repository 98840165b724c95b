package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// fakeCluster is an in-memory cluster, for tests that decide when failures happen. Behaviour of a
// real API server is tested on a real one.
type fakeCluster struct {
	repair.Writer // for methods that its tests do not use
	s             *blocks.Snapshot
	now           time.Time
	journal       repair.Recorder
	// unread makes the next readings fail. unreadable is the error, or nil if the API server is
	// unavailable.
	unread     int
	unreadable error
	// before is called before each write. If it returns an error, the write is not made. lost is
	// the error returned for writes that are made.
	before func(name string) error
	lost   error
	deaf   bool // writes have no effect
	leaves bool // a release leaves the affinity, in pendingDeletion
	wrote  []string
	whole  int // number of complete readings
}

// storyDrained is the example cluster with two empty blocks.
func storyDrained(t *testing.T) *fakeCluster {
	t.Helper()
	s, err := files.ReadFiles([]string{filepath.Join("..", "..", "examples", "snapshots", "story-drained")}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeCluster{s: s, now: s.Cluster.TakenAt}
}

func (f *fakeCluster) Read(ctx context.Context) (*blocks.Snapshot, error) {
	f.whole++
	return f.read(ctx)
}

func (f *fakeCluster) read(ctx context.Context) (*blocks.Snapshot, error) {
	if f.unread > 0 {
		f.unread--
		return nil, cmp.Or(f.unreadable, errors.New("connection refused"))
	}
	s := *f.s
	s.Blocks, s.Affinities, s.Handles = slices.Clone(s.Blocks), slices.Clone(s.Affinities), slices.Clone(s.Handles)
	s.Nodes, s.Workloads, s.Pools = slices.Clone(s.Nodes), slices.Clone(s.Workloads), slices.Clone(s.Pools)
	s.Cluster.TakenAt, s.Cluster.Live = f.now, true
	return &s, ctx.Err()
}

func (f *fakeCluster) Refresh(ctx context.Context, _ *blocks.Snapshot, _ []blocks.Ref) (*blocks.Snapshot, error) {
	return f.read(ctx)
}

// write is the common part of every write.
func (f *fakeCluster) write(r blocks.Resource, name string, change func()) error {
	if f.before != nil {
		if err := f.before(name); err != nil {
			return err
		}
	}
	if err := f.journal.Record(repair.Change{Verb: repair.VerbDelete, Resource: r, Name: name, Before: json.RawMessage(`{}`)}); err != nil {
		return err
	}
	f.wrote = append(f.wrote, name)
	if !f.deaf {
		change()
	}
	return f.lost
}

func (f *fakeCluster) ReleaseBlock(_ context.Context, block repair.ObjectRef, affinity, _ *repair.ObjectRef) error {
	return f.write(blocks.Blocks, block.Name, func() {
		dropBlock(f.s, block.Name)
		switch {
		case affinity != nil && f.leaves:
			f.s.Affinities = slices.Clone(f.s.Affinities)
			i := slices.IndexFunc(f.s.Affinities, func(a blocks.Affinity) bool { return a.Name == affinity.Name })
			f.s.Affinities[i].State = blocks.PendingDeletion
		case affinity != nil:
			dropAffinity(f.s, affinity.Name)
		}
	})
}

func (f *fakeCluster) DeleteAffinity(_ context.Context, a repair.ObjectRef) error {
	return f.write(blocks.Affinities, a.Name, func() { dropAffinity(f.s, a.Name) })
}

func (f *fakeCluster) SetStrictAffinity(_ context.Context, _ *repair.ObjectRef, strict bool) error {
	return f.write(blocks.IPAMConfigs, "default", func() { f.s.IPAM.Present, f.s.IPAM.StrictAffinity = true, strict })
}

var errNotFaked = errors.New("not faked")

func (f *fakeCluster) DisownBlock(context.Context, repair.ObjectRef, *repair.ObjectRef) error {
	return errNotFaked
}
func (f *fakeCluster) RestoreAffinity(context.Context, repair.ObjectRef) error { return errNotFaked }
func (f *fakeCluster) ReleaseIPs(_ context.Context, _ repair.ObjectRef, all []repair.ReleaseOptions) []error {
	return slices.Repeat([]error{errNotFaked}, len(all))
}
func (f *fakeCluster) DeleteHandle(context.Context, repair.ObjectRef) error { return errNotFaked }
func (f *fakeCluster) SetHandleCounts(context.Context, repair.ObjectRef, []blocks.HandleCount) error {
	return errNotFaked
}
func (f *fakeCluster) ClaimBlock(context.Context, netip.Prefix, string) error { return errNotFaked }
func (f *fakeCluster) Reserve(context.Context, netip.Prefix, string) error    { return errNotFaked }
func (f *fakeCluster) Unreserve(context.Context, repair.ObjectRef) error      { return errNotFaked }
func (f *fakeCluster) FinishDelete(context.Context, repair.ObjectRef) error   { return errNotFaked }
func (f *fakeCluster) PutAffinityState(context.Context, repair.ObjectRef, blocks.AffinityState) error {
	return errNotFaked
}
func (f *fakeCluster) RecreateHandle(context.Context, json.RawMessage) error { return errNotFaked }
func (f *fakeCluster) CreateHandle(context.Context, string, []blocks.HandleCount) error {
	return errNotFaked
}
func (f *fakeCluster) RecordIP(context.Context, repair.ObjectRef, int, repair.Allocation) error {
	return errNotFaked
}

// plan makes a plan for the present cluster.
func (f *fakeCluster) plan(t *testing.T, req repair.Request) *repair.Plan {
	t.Helper()
	s, err := f.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := planner.Build(state.New(s, state.Options{}), req)
	if len(p.Steps) == 0 {
		t.Fatalf("the plan has no steps; refused: %+v", p.Refused)
	}
	return p
}

// apply carries out a plan with a new journal.
func (f *fakeCluster) apply(t *testing.T, ctx context.Context, p *repair.Plan, opts Options) (*repair.Result, error) {
	t.Helper()
	j := newTestJournal(t)
	f.journal = j
	if opts.Sleep == nil {
		opts.Sleep = func(ctx context.Context, d time.Duration) error {
			f.now = f.now.Add(d)
			return ctx.Err()
		}
	}
	return Run(ctx, p, f, f, j, opts)
}

// mustApply is apply without an expected error; it returns statuses with codes.
func (f *fakeCluster) mustApply(t *testing.T, p *repair.Plan, opts Options) []string {
	t.Helper()
	r, err := f.apply(t, t.Context(), p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes(r)
}

func outcomes(r *repair.Result) []string {
	var out []string
	for _, o := range r.Outcomes {
		text := string(o.Status)
		if o.Code != "" {
			text += " " + string(o.Code)
		}
		out = append(out, text)
	}
	return out
}

func dropBlock(s *blocks.Snapshot, name string) {
	s.Blocks = slices.DeleteFunc(slices.Clone(s.Blocks), func(b blocks.Block) bool { return b.Name == name })
}

func dropAffinity(s *blocks.Snapshot, name string) {
	s.Affinities = slices.DeleteFunc(slices.Clone(s.Affinities), func(a blocks.Affinity) bool { return a.Name == name })
}
