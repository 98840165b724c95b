package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// freeing is an in-memory cluster whose addresses can be freed. It records how many are freed at
// once. Another client writes the addresses in changed during the first attempt.
type freeing struct {
	*fakeCluster
	changed []string
	calls   []int
	during  func()
	leaves  bool // their handles still count them
}

func (f *freeing) ReleaseIPs(_ context.Context, block repair.ObjectRef, all []repair.ReleaseOptions) []error {
	f.calls = append(f.calls, len(all))
	errs := make([]error, len(all))
	s := f.s.Clone()
	i := slices.IndexFunc(s.Blocks, func(b blocks.Block) bool { return b.Name == block.Name })
	for n, r := range all {
		if errs[n] = f.journal.Record(sent(r.Step, block.Name)); errs[n] != nil {
			continue
		}
		if slices.Contains(f.changed, r.Step) {
			errs[n] = repair.ErrChanged
			continue
		}
		free(&s.Blocks[i], netip.AddrFrom4([4]byte{10, 0, 0, s.Blocks[i].CIDR.Addr().As4()[3] + byte(r.Ordinal)}))
		if !f.leaves {
			s.Handles = slices.DeleteFunc(slices.Clone(s.Handles), func(h *blocks.Handle) bool { return h.ID == r.Handle })
		}
	}
	f.s, f.changed = s, nil
	if f.during != nil {
		f.during()
	}
	return errs
}

// sent is a write of a block for a step.
func sent(step, block string) repair.Change {
	return repair.Change{Step: step, Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: block, Before: json.RawMessage(`{"metadata":{"uid":"uid-` + block + `"},"spec":{"cidr":"10.0.0.0/26"}}`)}
}

// leavers is a cluster with blocks of some leaked addresses each, and the plan to free them.
func leavers(t *testing.T, leaked ...int) (*freeing, *repair.Plan) {
	t.Helper()
	world := "pool pods 10.0.0.0/24\nnode n1\npod shop/x n1\n"
	for k, n := range leaked {
		world += fmt.Sprintf("block 10.0.0.%d/26 n1\naffinity 10.0.0.%d/26 n1\n", 64*k, 64*k)
		for i := 64*k + 1; i <= 64*k+n; i++ {
			world += fmt.Sprintf("alloc 10.0.0.%d pod=shop/gone-%d node=n1 handle=k8s-pod-network.gone-%d\nhandle k8s-pod-network.gone-%d 10.0.0.%d/26=1\n", i, i, i, i, 64*k)
		}
	}
	snap, err := statedsl.Parse(world)
	if err != nil {
		t.Fatal(err)
	}
	snap.Cluster.Datastore = "kubernetes"
	f := &freeing{fakeCluster: &fakeCluster{s: snap, now: snap.Cluster.TakenAt}}
	return f, f.plan(t, repair.Request{LeakedIPs: true, WithoutHostEvidence: true})
}

// waits advances the time of an in-memory cluster.
func (f *freeing) waits(ctx context.Context, d time.Duration) error {
	f.now = f.now.Add(d)
	return ctx.Err()
}

func planJournal(t *testing.T, p *repair.Plan) *journal.Journal {
	t.Helper()
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal.jsonl"), journal.Header{Cluster: p.Cluster, Plan: p, StartedAt: p.CreatedAt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// resumes closes the journal of a run, and continues it.
func (f *freeing) resumes(t *testing.T, j *journal.Journal, p *repair.Plan) (*journal.File, *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := journal.Read(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	again, err := journal.Resume(j.Path(), p.CreatedAt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	f.journal = again
	return file, again
}

// TestTogether: the addresses of one block that may be freed now are freed in one write. Each has
// its own outcome.
func TestTogether(t *testing.T) {
	done := slices.Repeat([]string{"done"}, 4)
	for name, c := range map[string]struct {
		later     time.Duration
		changed   []string
		interrupt bool
		opts      Options
		calls     []int
		want      []string
	}{
		"all of them":              {later: time.Hour, calls: []int{4}, want: done},
		"one is written meanwhile": {later: time.Hour, changed: []string{"release-ip:10.0.0.2"}, calls: []int{4, 1}, want: done},
		"a bound on steps":         {later: time.Hour, opts: Options{MaxSteps: 2}, calls: []int{2}, want: []string{"done", "done", "not-tried MaxSteps", "not-tried MaxSteps"}},
		"a bound on steps, and one is written meanwhile": {
			later: time.Hour, changed: []string{"release-ip:10.0.0.2"}, opts: Options{MaxSteps: 3}, calls: []int{3, 1},
			want: []string{"done", "done", "done", "not-tried MaxSteps"},
		},
		"all are written meanwhile, and it is interrupted": {
			later: time.Hour, changed: []string{"release-ip:10.0.0.1", "release-ip:10.0.0.2", "release-ip:10.0.0.3", "release-ip:10.0.0.4"},
			interrupt: true, calls: []int{4}, want: slices.Repeat([]string{"not-tried Interrupted"}, 4),
		},
		"interrupted meanwhile":    {later: time.Hour, interrupt: true, calls: []int{4}, want: done},
		"too soon":                 {want: slices.Repeat([]string{"skipped TooSoon"}, 4)},
		"too soon, and waited for": {opts: Options{Wait: true}, calls: []int{4}, want: done},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := leavers(t, 4)
			f.changed = c.changed
			f.now = f.now.Add(c.later)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.interrupt {
				f.during = cancel
			}
			j := planJournal(t, p)
			f.journal = j
			c.opts.Pace = time.Millisecond
			pauses := 0
			c.opts.Sleep = func(ctx context.Context, d time.Duration) error {
				if d == c.opts.Pace {
					pauses++
					if all := entries(t, j.Path()); all[len(all)-1].Event != journal.EventEnd {
						t.Error("a pause comes before the end of a step is in the journal")
					}
				}
				return f.waits(ctx, d)
			}
			r, err := Run(ctx, p, f, f, j, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			wantOutcomes(t, outcomes(r), c.want...)
			if diff := cmp.Diff(c.calls, f.calls); diff != "" {
				t.Errorf("addresses at once (-want +got):\n%s", diff)
			}
			if wrote := r.Count(repair.Done) > 0; wrote != (pauses == 1) {
				t.Errorf("%d pauses", pauses)
			}
			if !j.Exists() {
				return
			}
			file, err := journal.Read(j.Path())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range file.Unfinished() {
				t.Errorf("%s is called half-done", s.ID)
			}
		})
	}
}

// TestTogetherByBlock: each write frees addresses of one block only.
func TestTogetherByBlock(t *testing.T) {
	f, p := leavers(t, 2, 3)
	f.now = f.now.Add(time.Hour)
	j := planJournal(t, p)
	f.journal = j
	r, err := Run(t.Context(), p, f, f, j, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), slices.Repeat([]string{"done"}, 5)...)
	if diff := cmp.Diff([]int{2, 3}, f.calls); diff != "" {
		t.Errorf("addresses at once (-want +got):\n%s", diff)
	}
}

// TestTogetherWithoutJournal: if nothing can be recorded, none of the addresses is freed, and each
// step says so. Steps that were recorded before the journal broke have the outcome that is read.
func TestTogetherWithoutJournal(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(j *journal.Journal, dir string) error
		later bool // after the write
		calls []int
		want  string
	}{
		"it cannot be made":     {func(_ *journal.Journal, dir string) error { return os.Remove(dir) }, false, []int{2}, "skipped Journal"},
		"it is closed":          {func(j *journal.Journal, _ string) error { return j.Close() }, false, nil, "skipped Journal"},
		"it is closed mid-step": {func(j *journal.Journal, _ string) error { return j.Close() }, true, []int{2}, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := leavers(t, 2)
			f.now = f.now.Add(time.Hour)
			dir := t.TempDir()
			j, err := journal.Create(filepath.Join(dir, "j.jsonl"), journal.Header{Plan: p})
			if err != nil {
				t.Fatal(err)
			}
			spoil := func() {
				if err := c.spoil(j, dir); err != nil {
					t.Error(err)
				}
			}
			if c.later {
				f.during = spoil
			} else {
				spoil()
			}
			f.journal = j
			r, err := Run(t.Context(), p, f, f, j, Options{Sleep: f.waits})
			if err != nil {
				t.Fatal(err)
			}
			wantOutcomes(t, outcomes(r), c.want, c.want)
			if diff := cmp.Diff(c.calls, f.calls); diff != "" || (f.s.Blocks[0].Ordinals[1] == blocks.Free) != c.later {
				t.Errorf("addresses at once (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTogetherFinish: if a run died while it released addresses together, Finish completes those
// that it had started and none after them.
func TestTogetherFinish(t *testing.T) {
	const all, begun = 6, 2
	f, p := leavers(t, all)
	f.now = f.now.Add(time.Hour)
	j := planJournal(t, p)
	for i, s := range p.Steps {
		if err := j.Start(s.ID); err != nil {
			t.Fatal(err)
		}
		if i >= begun {
			continue
		}
		if err := j.Record(sent(s.ID, "10-0-0-0-26")); err != nil {
			t.Fatal(err)
		}
	}
	file, again := f.resumes(t, j, p)
	r, err := Finish(t.Context(), file, f, f, again, Options{Sleep: f.waits})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "done", "done")
	if diff := cmp.Diff([]int{1, 1}, f.calls); diff != "" {
		t.Errorf("addresses at once (-want +got):\n%s", diff)
	}
}

// TestTogetherResumed: a resumed run frees together the addresses that the earlier run had not started.
// It frees each of the others alone.
func TestTogetherResumed(t *testing.T) {
	f, p := leavers(t, 6)
	f.now = f.now.Add(time.Hour)
	j := planJournal(t, p)
	for i, o := range []repair.Outcome{{Step: p.Steps[0], Status: repair.Done}, {Step: p.Steps[1], Status: repair.Skipped, Code: repair.SkipChanged}} {
		if err := j.Start(o.Step.ID); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := j.Record(sent(o.Step.ID, "10-0-0-0-26")); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.End(o); err != nil {
			t.Fatal(err)
		}
	}
	file, again := f.resumes(t, j, p)
	r, err := Run(t.Context(), p, f, f, again, Options{Sleep: f.waits, Resume: file})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), slices.Repeat([]string{"done"}, 6)...)
	if diff := cmp.Diff([]int{1, 1, 4}, f.calls); diff != "" {
		t.Errorf("addresses at once (-want +got):\n%s", diff)
	}
}

// TestTogetherSlowly: writing many objects may take longer than the limit for one. Their outcomes
// are read all the same, and leftovers are waited for once, not for each step.
func TestTogetherSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, leaves := range []bool{false, true} {
			f, p := leavers(t, 4)
			f.leaves, f.now = leaves, f.now.Add(time.Hour)
			f.during = func() { time.Sleep(2 * blocks.WriteTimeout) }
			j := planJournal(t, p)
			f.journal = j
			pauses := 0
			r, err := Run(t.Context(), p, f, f, j, Options{Sleep: func(ctx context.Context, d time.Duration) error {
				pauses++
				return f.waits(ctx, d)
			}})
			if err != nil {
				t.Fatal(err)
			}
			want, wait := "done", 0
			if leaves {
				want, wait = "failed", 1
			}
			wantOutcomes(t, outcomes(r), slices.Repeat([]string{want}, 4)...)
			if pauses != wait {
				t.Errorf("%d pauses, want %d", pauses, wait)
			}
			for _, o := range r.Outcomes {
				if strings.Contains(o.Reason, "not known") {
					t.Errorf("%s: %s", o.Step.ID, o.Reason)
				}
			}
		}
	})
}

// TestTogetherWithoutOne: an address that a pod uses by now is left out of the write, and the others
// are freed together.
func TestTogetherWithoutOne(t *testing.T) {
	f, p := leavers(t, 3)
	back, err := statedsl.Parse("node n1\npod shop/gone-2 n1 10.0.0.2\n")
	if err != nil {
		t.Fatal(err)
	}
	f.s.Workloads = append(slices.Clone(f.s.Workloads), back.Workloads...)
	f.now = f.now.Add(time.Hour)
	j := planJournal(t, p)
	f.journal = j
	r, err := Run(t.Context(), p, f, f, j, Options{Sleep: f.waits})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "done", "skipped InUse", "done")
	if diff := cmp.Diff([]int{2}, f.calls); diff != "" {
		t.Errorf("addresses at once (-want +got):\n%s", diff)
	}
}
