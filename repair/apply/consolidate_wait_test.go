package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/moves"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// TestOtherRun: while another run moves pods, no run starts and none is undone. A run that notices
// another one midway leaves everything to it.
func TestOtherRun(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks)
	p := m.plan(t, emptied)
	m.other = true
	j := newTestJournal(t)
	m.journal = j
	if _, err := Run(t.Context(), p, m, m, j, Options{Workloads: m}); !errors.Is(err, repair.ErrOtherRun) || len(m.did) > 0 {
		t.Errorf("beside another: %v, and did %v", err, m.did)
	}
	f := &journal.File{Header: journal.Header{Cluster: p.Cluster, Plan: p}}
	if _, err := Undo(t.Context(), f, m, m, j, Options{Workloads: m}); !errors.Is(err, repair.ErrOtherRun) {
		t.Errorf("an undo beside another: %v", err)
	}
	m.other = false
	out := m.carry(t.Context(), t, p, Options{Progress: func(o repair.Outcome) { m.other = m.other || o.Step.ID == "evict-pod:10.0.0.26" }})
	if got := strings.Join(m.did, ", "); got != "reserve 10.0.0.24/29, cordon new, evict api-1" {
		t.Errorf("with another from the second eviction on it did %s", got)
	}
	for id, o := range out {
		if k := planner.KindOf(o.Step.Kind); k.Restores && (o.Status != repair.Skipped || !strings.Contains(o.Reason, repair.ErrOtherRun.Error())) {
			t.Errorf("%s: %s, %s", id, o.Status, o.Reason)
		}
	}
	if m.held != 0 {
		t.Errorf("%d leases are not released", m.held)
	}
}

// arrives assigns another pod an address of the block being emptied.
func (m *podCluster) arrives(t *testing.T) {
	with := newPodCluster(t, shortOfBlocks+"use 10.0.0.28 shop/late b of=ReplicaSet/api ready\n").s
	s := m.s.Clone()
	s.Workloads = append(s.Workloads, with.Workloads[slices.IndexFunc(with.Workloads, func(w *blocks.Workload) bool { return w.Name == "late" })])
	slices.SortFunc(s.Workloads, func(a, b *blocks.Workload) int { return strings.Compare(a.FullName(), b.FullName()) })
	s.Blocks, s.Handles = with.Blocks, with.Handles
	m.s = s
}

// TestLatePodIsSaidAtOnce: a pod that got an address of the block after the plan was made ends the
// consolidation before the wait for the reservation. No node is cordoned before that wait.
func TestLatePodIsSaidAtOnce(t *testing.T) {
	for at, want := range map[repair.Kind]string{repair.ReserveBlock: "", repair.CordonNode: "reserve 10.0.0.24/29, unreserve"} {
		m := newPodCluster(t, shortOfBlocks)
		p, began := m.plan(t, emptied), m.now
		out := m.carry(t.Context(), t, p, Options{Progress: func(o repair.Outcome) {
			if o.Step.Kind == at && o.Status == "" && o.Reason == "" {
				m.arrives(t)
			}
		}})
		if got := strings.Join(m.did, ", "); got != want {
			t.Errorf("at %s it did %q, not %q", at, got, want)
		}
		if waited := m.now.Sub(began); waited > 5*time.Second {
			t.Errorf("at %s that is known after %s", at, waited)
		}
		for id, o := range out {
			if o.Step.Kind == at && (o.Code != repair.SkipCode(repair.RefusedConflict) || !strings.Contains(o.Reason, "pod shop/late now has 10.0.0.28")) {
				t.Errorf("%s: %s %s: %s", id, o.Status, o.Code, o.Reason)
			}
		}
	}
	m := newPodCluster(t, shortOfBlocks)
	var cordoned time.Time
	began := m.now
	m.carry(t.Context(), t, m.plan(t, emptied), Options{Progress: func(o repair.Outcome) {
		if o.Step.Kind == repair.CordonNode && o.Status == repair.Done {
			cordoned = m.now
		}
	}})
	if after := cordoned.Sub(began); after < 90*time.Second {
		t.Errorf("a node was cordoned after %s", after)
	}
}

// TestWaitsReadLittle: if its controller identifies the replacement, a longer wait for it causes no
// additional complete readings.
func TestWaitsReadLittle(t *testing.T) {
	readings := func(text string, polls int) (whole int) {
		m := newPodCluster(t, text)
		p := m.plan(t, emptied)
		m.fakeCluster.whole, m.unready = 0, true
		left := polls
		out := m.carry(t.Context(), t, p, Options{Sleep: func(_ context.Context, d time.Duration) error {
			m.now = m.now.Add(d)
			if left--; d == moves.EvictPoll && left <= 0 {
				left = polls
				for i := range m.s.Workloads {
					m.s.Workloads[i].Ready = true
				}
			}
			return nil
		}})
		for id, o := range out {
			if o.Status != repair.Done && o.Status != repair.Already {
				t.Errorf("%s: %s %s", id, o.Status, o.Reason)
			}
		}
		return m.fakeCluster.whole
	}
	hashed := strings.ReplaceAll(shortOfBlocks, " ready", " ready label=pod-template-hash=5d4")
	if few, many := readings(hashed, 2), readings(hashed, 20); few != many {
		t.Errorf("pods of a Deployment: %d readings of everything with few polls, and %d with many", few, many)
	}
	stateful := strings.ReplaceAll(shortOfBlocks, "ReplicaSet", "StatefulSet")
	if few, many := readings(stateful, 2), readings(stateful, 20); few != many {
		t.Errorf("pods of a StatefulSet: %d readings of everything with few polls, and %d with many", few, many)
	}
	if few, many := readings(shortOfBlocks, 2), readings(shortOfBlocks, 20); few >= many {
		t.Errorf("pods without a label that tells them: %d readings of everything with few polls, and %d with many", few, many)
	}
}

// TestEvictTimeoutBoundsTheWait: --evict-timeout limits the total wait for one eviction: for other
// pods of the controller, for a budget, for the pod's end and for its replacement.
func TestEvictTimeoutBoundsTheWait(t *testing.T) {
	const limit = 20 * time.Second
	for name, c := range map[string]struct {
		refusals int
		unready  bool
		// lateFor is how long another pod of the controller is not ready.
		lateFor time.Duration
	}{
		"a budget that refuses":              {refusals: 99},
		"a replacement that is never ready":  {unready: true},
		"a budget, and then the replacement": {refusals: 2, unready: true},
		"another pod, and then a budget":     {refusals: 99, lateFor: 15 * time.Second},
	} {
		m, req := newPodCluster(t, shortOfBlocks), emptied
		req.EvictSingletons = true
		p := m.plan(t, req)
		m.refusals, m.unready = c.refusals, c.unready
		ready := func(is bool) {
			for i := range m.s.Workloads {
				if w := m.s.Workloads[i]; w.Name == "api-2" && w.Ready != is {
					other := *w
					other.Ready = is
					m.s.Workloads[i] = &other
				}
			}
		}
		var began, ended time.Time
		m.carry(t.Context(), t, p, Options{EvictTimeout: limit, Progress: func(o repair.Outcome) {
			if o.Step.ID != "evict-pod:10.0.0.25" {
				return
			}
			if began.IsZero() {
				began = m.now
				ready(c.lateFor == 0)
			}
			if ended = m.now; ended.Sub(began) >= c.lateFor {
				ready(true)
			}
		}})
		if took := ended.Sub(began); took < limit-moves.EvictPoll || took > limit+moves.EvictPoll {
			t.Errorf("%s: it took %s, not %s", name, took, limit)
		}
		m.clean(t)
	}
}

// TestRevokedAccountStopsAtOnce: after the API server refuses the account, a run tries once more,
// then stops and reports it, even if temporary changes are left.
func TestRevokedAccountStopsAtOnce(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks)
	p := m.plan(t, emptied)
	var revoked time.Time
	out := m.carry(t.Context(), t, p, Options{Progress: func(o repair.Outcome) {
		if o.Step.Kind == repair.EvictPod && o.Status == "" && revoked.IsZero() {
			revoked, m.unread, m.unreadable = m.now, 99, fmt.Errorf("reading the cluster: %w", blocks.ErrDenied)
		}
	}})
	if took := m.now.Sub(revoked); took > 2*time.Second {
		t.Errorf("it went on for %s", took)
	}
	if asked := 99 - m.unread; asked > 5 {
		t.Errorf("it asked %d times", asked)
	}
	for id, want := range map[string]string{
		"evict-pod:10.0.0.25":          "the API server refuses this account",
		"unreserve-block:10.0.0.24/29": "the API server refuses this account",
		"claim-block:new:10.0.0.24/29": "with an account that has the rights, undo it: calico-audit repair undo ",
	} {
		if o := out[id]; !o.Open() || !strings.Contains(o.Reason, want) {
			t.Errorf("%s: %s, %s", id, o.Status, o.Reason)
		}
	}
}
