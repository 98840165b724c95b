package apply

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// freeing is a cluster in memory whose addresses can be freed. It notes how many are at
// once; changed is one that somebody writes at the first try.
type freeing struct {
	*fakeCluster
	changed string
	calls   []int
	during  func()
}

func (f *freeing) ReleaseIPs(_ context.Context, block repair.ObjectRef, all []repair.Release) []error {
	f.calls = append(f.calls, len(all))
	errs := make([]error, len(all))
	s := f.s.Clone()
	i := slices.IndexFunc(s.Blocks, func(b blocks.Block) bool { return b.Name == block.Name })
	for n, r := range all {
		if r.Step == f.changed {
			f.changed, errs[n] = "", repair.ErrChanged
			continue
		}
		if errs[n] = f.journal.Record(repair.Change{Step: r.Step, Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: block.Name}); errs[n] != nil {
			continue
		}
		free(&s.Blocks[i], netip.AddrFrom4([4]byte{10, 0, 0, byte(r.Ordinal)}))
		s.Handles = slices.DeleteFunc(slices.Clone(s.Handles), func(h blocks.Handle) bool { return h.ID == r.Handle })
	}
	f.s = s
	if f.during != nil {
		f.during()
	}
	return errs
}

// TestTogether: addresses of one block are freed in one write, as far as they may be now;
// each has an outcome of its own.
func TestTogether(t *testing.T) {
	world := "pool pods 10.0.0.0/24\nnode n1\npod shop/x n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n"
	for i := 1; i <= 4; i++ {
		world += fmt.Sprintf("alloc 10.0.0.%d pod=shop/gone-%d node=n1 handle=k8s-pod-network.gone-%d\nhandle k8s-pod-network.gone-%d 10.0.0.0/26=1\n", i, i, i, i)
	}
	done := slices.Repeat([]string{"done"}, 4)
	for name, c := range map[string]struct {
		later     time.Duration
		changed   string
		interrupt bool
		opts      Options
		calls     []int
		want      []string
	}{
		"all of them":              {later: time.Hour, calls: []int{4}, want: done},
		"one is written meanwhile": {later: time.Hour, changed: "release-ip:10.0.0.2", calls: []int{4, 1}, want: done},
		"a bound on steps":         {later: time.Hour, opts: Options{MaxSteps: 2}, calls: []int{2}, want: []string{"done", "done", "not-tried MaxSteps", "not-tried MaxSteps"}},
		"interrupted meanwhile":    {later: time.Hour, interrupt: true, calls: []int{4}, want: done},
		"too soon":                 {want: slices.Repeat([]string{"skipped TooSoon"}, 4)},
		"too soon, and waited for": {opts: Options{Wait: true}, calls: []int{4}, want: done},
	} {
		t.Run(name, func(t *testing.T) {
			snap, err := statedsl.Parse(world)
			if err != nil {
				t.Fatal(err)
			}
			snap.Cluster.Datastore = "kubernetes"
			f := &freeing{fakeCluster: &fakeCluster{s: snap, now: snap.Cluster.TakenAt}, changed: c.changed}
			p := f.plan(t, repair.Request{LeakedIPs: true, WithoutHostEvidence: true})
			f.now = f.now.Add(c.later)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.interrupt {
				f.during = cancel
			}
			j := newTestJournal(t)
			f.journal = j
			c.opts.Sleep = func(ctx context.Context, d time.Duration) error { f.now = f.now.Add(d); return ctx.Err() }
			r, err := Run(ctx, p, f, f, j, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			wantOutcomes(t, outcomes(r), c.want...)
			if diff := cmp.Diff(c.calls, f.calls); diff != "" {
				t.Errorf("addresses at once (-want +got):\n%s", diff)
			}
		})
	}
}
