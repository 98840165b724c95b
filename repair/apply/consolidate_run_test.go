package apply

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// shortOfBlocks is a shortage in which emptying 10.0.0.24/29 of b moves the fewest pods.
const shortOfBlocks = statedsl.ShortOfBlocks + `use 10.0.0.1 shop/web-1 a of=ReplicaSet/web ready
use 10.0.0.2 shop/web-2 a of=ReplicaSet/web ready
use 10.0.0.3 shop/web-8 a of=ReplicaSet/web ready
use 10.0.0.9 shop/web-3 a of=ReplicaSet/web ready
use 10.0.0.11 shop/web-9 a of=ReplicaSet/web ready
use 10.0.0.12 shop/web-0 a of=ReplicaSet/web ready
use 10.0.0.17 shop/x-4 b of=ReplicaSet/x ready
use 10.0.0.18 shop/x-5 b of=ReplicaSet/x ready
use 10.0.0.19 shop/x-6 b of=ReplicaSet/x ready
use 10.0.0.25 shop/api-1 b of=ReplicaSet/api ready
use 10.0.0.26 shop/api-2 b of=ReplicaSet/api ready
use 10.0.0.10 shop/borrower new of=ReplicaSet/web ready
`

var emptied = repair.Request{Consolidate: true, CordonFull: true}

// podCluster is an in-memory cluster in which pods can be evicted, nodes cordoned, and blocks
// reserved and claimed. An evicted pod is replaced by one without an address, which is ready unless
// unready is set.
type podCluster struct {
	*fakeCluster
	unready bool
	did     []string
	refresh func()
	// other is true while another run moves pods; held counts the leases not released.
	other bool
	held  int
	// cordoned is true if another client cordons a node right before each cordon.
	cordoned bool
	// refusals is how many evictions a budget refuses.
	refusals int
}

func newPodCluster(t *testing.T, text string) *podCluster {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster.GUID = "g"
	return &podCluster{fakeCluster: &fakeCluster{s: s, now: s.Cluster.TakenAt}, refresh: func() {}}
}

func (m *podCluster) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	m.refresh()
	return m.fakeCluster.Refresh(ctx, prev, refs)
}

func (m *podCluster) Reserve(_ context.Context, c netip.Prefix, mark string) error {
	m.did = append(m.did, "reserve "+c.String())
	return m.write(blocks.Reservations, "r", func() {
		m.s.Reservations = append(slices.Clone(m.s.Reservations), blocks.Reservation{
			Meta: blocks.Meta{Name: remedies.ReservationName(c), Pin: blocks.PinOf("r", "1"), Created: blocks.TimeOf(m.now)}, Ours: mark, CIDRs: []netip.Prefix{c},
		})
	})
}

func (m *podCluster) Unreserve(_ context.Context, o repair.ObjectRef) error {
	m.did = append(m.did, "unreserve")
	return m.write(blocks.Reservations, "r", func() {
		m.s.Reservations = slices.DeleteFunc(slices.Clone(m.s.Reservations), func(r blocks.Reservation) bool { return r.Name == o.Name })
	})
}

func (m *podCluster) cordon(name, mark string) error {
	m.s.Nodes = slices.Clone(m.s.Nodes)
	for i := range m.s.Nodes {
		if n := &m.s.Nodes[i]; n.Name == name {
			n.Unschedulable, n.Ours = mark != "", mark
		}
	}
	return nil
}

func (m *podCluster) Cordon(_ context.Context, n repair.ObjectRef, mark string) error {
	if m.cordoned {
		return repair.ErrChanged
	}
	m.did = append(m.did, "cordon "+n.Name)
	return m.cordon(n.Name, mark)
}

func (m *podCluster) Uncordon(_ context.Context, n repair.ObjectRef, _ string) error {
	m.did = append(m.did, "uncordon "+n.Name)
	return m.cordon(n.Name, "")
}

func (m *podCluster) Evict(_ context.Context, _, name, uid string) error {
	if m.refusals > 0 {
		m.refusals--
		return &repair.RefusedEvictionError{Pod: blocks.Key{Name: name}, Reason: "the budget allows none", ForNow: true}
	}
	m.did = append(m.did, "evict "+name)
	s := m.s.Clone()
	for i, p := range s.Workloads {
		if p.UID() != uid {
			continue
		}
		w := *p
		for j := range s.Blocks {
			if b := &s.Blocks[j]; b.CIDR.Contains(w.StatusIPs[0]) {
				free(b, w.StatusIPs[0])
			}
		}
		w.Name, w.Pin, w.StatusIPs, w.AnnotationIPs, w.Ready = name+"-new", blocks.PinOf(name+"-new", ""), nil, nil, !m.unready
		if m.unready {
			w.Phase = "Pending"
		}
		s.Workloads = append(slices.Delete(slices.Clone(s.Workloads), i, i+1), &w)
		break
	}
	m.s = s
	return nil
}

// free releases an address of a block.
func free(b *blocks.Block, a netip.Addr) {
	i, _ := b.Ordinal(a)
	removed := b.Ordinals[i]
	b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), slices.Delete(slices.Clone(b.Attributes), int(removed), int(removed)+1)
	b.Ordinals[i], b.Unallocated = blocks.Free, append(slices.Clone(b.Unallocated), int32(i))
	for j, o := range b.Ordinals {
		if o > removed {
			b.Ordinals[j] = o - 1
		}
	}
	b.OrdinalSequences = slices.DeleteFunc(slices.Clone(b.OrdinalSequences), func(s blocks.OrdinalSequence) bool { return int(s.Ordinal) == i })
	b.Pin = blocks.PinOf(b.UID(), b.ResourceVersion()+"1")
}

// AcquireLease is refused while other is set. If other is set later, the lease is lost.
func (m *podCluster) AcquireLease(ctx context.Context, _ func(string)) (repair.Lease, error) {
	if err := m.Check(ctx); err != nil {
		return nil, err
	}
	m.held++
	return m, nil
}

func (m *podCluster) Check(context.Context) error {
	if m.other {
		return repair.ErrOtherRun
	}
	return nil
}

func (m *podCluster) Release() { m.held-- }

func (m *podCluster) ClaimBlock(_ context.Context, c netip.Prefix, host string) error {
	m.did = append(m.did, "claim "+c.String())
	made, err := statedsl.Parse(fmt.Sprintf("block %s %s\naffinity %s %s\n", c, host, c, host))
	if err != nil {
		return err
	}
	s := m.s.Clone()
	s.Blocks = append(slices.DeleteFunc(s.Blocks, func(b blocks.Block) bool { return b.CIDR == c }), made.Blocks...)
	s.Affinities = append(slices.DeleteFunc(s.Affinities, func(a blocks.Affinity) bool { return a.CIDR == c }), made.Affinities...)
	m.s = s
	return nil
}

// carry applies a plan, and returns the outcomes of its steps.
func (m *podCluster) carry(ctx context.Context, t *testing.T, p *repair.Plan, opts Options) map[string]repair.Outcome {
	t.Helper()
	m.did = nil
	j := newTestJournal(t)
	m.journal, opts.Workloads = j, m
	if opts.Sleep == nil {
		opts.Sleep = func(ctx context.Context, d time.Duration) error { m.now = m.now.Add(d); return ctx.Err() }
	}
	r, err := Run(ctx, p, m, m, j, opts)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]repair.Outcome{}
	for _, o := range r.Outcomes {
		out[o.Step.ID] = o
	}
	return out
}

// clean fails if a reservation or a cordon exists.
func (m *podCluster) clean(t *testing.T) {
	t.Helper()
	if len(m.s.Reservations) > 0 || slices.ContainsFunc(m.s.Nodes, func(n blocks.Node) bool { return n.Unschedulable }) {
		t.Errorf("left: %+v, %+v", m.s.Reservations, m.s.Nodes)
	}
}

const wholeConsolidation = "reserve 10.0.0.24/29, cordon new, evict api-1, evict api-2, claim 10.0.0.24/29, unreserve, uncordon new"

func TestConsolidationCarriedOut(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks)
	m.carry(t.Context(), t, m.plan(t, emptied), Options{})
	if got := strings.Join(m.did, ", "); got != wholeConsolidation {
		t.Error(got)
	}
	m.clean(t)
}

// TestRestoringIsNotCounted: a step that reverts a temporary change is neither paced nor counted, and
// the steps after it are.
func TestRestoringIsNotCounted(t *testing.T) {
	x := &run{}
	for step, want := range []int{0, 1} {
		write := func(context.Context) repair.Outcome {
			x.wroteStep()
			return repair.Outcome{}
		}
		if step == 0 {
			x.restore(t.Context(), write)
		} else {
			write(t.Context())
		}
		if x.wrote != want || x.paces != (want > 0) {
			t.Errorf("after step %d: %d counted, pause %t", step+1, x.wrote, x.paces)
		}
	}
}

// TestCordonsWhatFillsUp: a node without free addresses after an eviction is cordoned before the
// next eviction, and uncordoned at the end. A node that keeps some is not cordoned. Without the
// consent to cordon, no step is planned.
func TestCordonsWhatFillsUp(t *testing.T) {
	text := shortOfBlocks + "fill 10.0.0.0/29 5 a\nfill 10.0.0.8/29 3 a\n"
	for fills, want := range map[bool]string{
		false: wholeConsolidation,
		true:  "reserve 10.0.0.24/29, cordon new, evict api-1, cordon a, evict api-2, claim 10.0.0.24/29, unreserve, uncordon a, uncordon new",
	} {
		m := newPodCluster(t, text)
		p := m.plan(t, emptied)
		if !slices.Equal(p.MayFill, []string{"a"}) {
			t.Fatalf("may fill up: %v", p.MayFill)
		}
		m.refresh = func() {
			if b := blockNamed(m.s, "10-0-0-8-29"); fills && slices.Contains(m.did, "evict api-1") && len(b.Unallocated) > 0 {
				m.s = m.s.Clone()
				take(blockNamed(m.s, b.Name))
			}
		}
		out := m.carry(t.Context(), t, p, Options{})
		if got := strings.Join(m.did, ", "); got != want {
			t.Errorf("fills %t: %s", fills, got)
		}
		if o := out["cordon-node:a"]; o.Status == repair.Done != fills || !fills && o.Status != repair.Already {
			t.Errorf("fills %t: %+v", fills, o)
		}
		m.clean(t)
	}
	m := newPodCluster(t, text)
	s, err := m.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := planner.Build(state.New(s, state.Options{}), repair.Request{Consolidate: true})
	if len(p.Steps) > 0 || !slices.ContainsFunc(p.Refused, func(r repair.Refusal) bool {
		return r.Code == repair.RefusedConsent && strings.Contains(r.Reason, ": a and new; consent")
	}) {
		t.Errorf("without consent: %d steps, refused %+v", len(p.Steps), p.Refused)
	}
}

func blockNamed(s *blocks.Snapshot, name string) *blocks.Block {
	return &s.Blocks[slices.IndexFunc(s.Blocks, func(b blocks.Block) bool { return b.Name == name })]
}

// take assigns the first free address of a block.
func take(b *blocks.Block) {
	i := slices.Index(b.Ordinals, blocks.Free)
	b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), append(slices.Clone(b.Attributes), b.Attributes[0])
	b.Ordinals[i] = int32(len(b.Attributes) - 1)
	b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return int(o) == i })
	b.Pin = blocks.PinOf(b.UID(), b.ResourceVersion()+"1")
}

// TestEvictsBesideReady: no pod is evicted while another pod of its controller is not ready,
// regardless of the reason.
func TestEvictsBesideReady(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks)
	m.unready = true
	m.carry(t.Context(), t, m.plan(t, emptied), Options{})
	if !slices.Contains(m.did, "evict api-1") {
		t.Fatal(m.did)
	}
	again := emptied
	again.EvictSingletons, again.Blocks = true, []netip.Prefix{netip.MustParsePrefix("10.0.0.24/29")}
	out := m.carry(t.Context(), t, m.plan(t, again), Options{})
	if o := out["evict-pod:10.0.0.26"]; o.Code != repair.SkipCode(repair.RefusedConflict) || !strings.Contains(o.Reason, "pod shop/api-1-new of the same ReplicaSet is not ready, after 5m0s") {
		t.Errorf("the same again: %+v", o)
	}
	if slices.Contains(m.did, "evict api-2") {
		t.Error("api-2 was evicted beside a pod that is not ready")
	}
	m.clean(t)
	// The run continues when the pod becomes ready in time.
	out = m.carry(t.Context(), t, m.plan(t, again), Options{Progress: func(o repair.Outcome) {
		if strings.Contains(o.Reason, "is not ready") {
			m.unready = false
			for i := range m.s.Workloads {
				m.s.Workloads[i].Ready = true
			}
		}
	}})
	if o := out["evict-pod:10.0.0.26"]; o.Status != repair.Done {
		t.Errorf("when it is ready: %+v", o)
	}
}

// TestReplacedWhere: a DaemonSet's pod is replaced on its own node. Other pods are replaced by new
// ones that are all ready.
func TestReplacedWhere(t *testing.T) {
	before := parseState(t, shortOfBlocks+"use 10.0.0.28 sys/ds-b b of=DaemonSet/ds ready\n")
	for now, want := range map[string]bool{
		"pod sys/ds-b2 b of=DaemonSet/ds\nuse 10.0.0.4 sys/ds-a a of=DaemonSet/ds ready\n":  false,
		"use 10.0.0.20 sys/ds-b2 b of=DaemonSet/ds ready\npod sys/ds-a a of=DaemonSet/ds\n": true,
	} {
		w := before.Pod("sys", "ds-b")
		s := &repair.Step{Guards: guards(repair.GuardPod, "sys/ds-b", repair.GuardPodUID, w.UID(), repair.GuardController, w.Controller.UID)}
		if done, waits, err := planner.KindOf(repair.EvictPod).Settled(before, parseState(t, shortOfBlocks+now), s); done != want || err != nil {
			t.Errorf("%s: %v %s %v", now, done, waits, err)
		}
	}
}

// TestRestoresWhenInterrupted: an interrupt during the removal of a temporary change does not stop
// the removal, and no pause delays it.
func TestRestoresWhenInterrupted(t *testing.T) {
	for _, during := range []repair.Kind{repair.UnreserveBlock, repair.UncordonNode} {
		m := newPodCluster(t, shortOfBlocks)
		ctx, cancel := context.WithCancel(t.Context())
		in, pauses := false, 0
		m.refresh = func() {
			if in {
				cancel()
			}
		}
		m.carry(ctx, t, m.plan(t, emptied), Options{
			Pace: time.Hour, Progress: func(o repair.Outcome) { in = o.Step.Kind == during && o.Status == "" },
			Sleep: func(ctx context.Context, d time.Duration) error {
				if d == time.Hour {
					pauses++
					return ctx.Err()
				}
				m.now = m.now.Add(d)
				return ctx.Err()
			},
		})
		if pauses != 6 {
			t.Errorf("%s: %d pauses", during, pauses)
		}
		m.clean(t)
	}
}

// TestFiltersChooseConsolidation: filters select among consolidations, each of which is proposed
// and carried out completely. Remains of an earlier one are removed regardless of the filters.
func TestFiltersChooseConsolidation(t *testing.T) {
	block := func(c string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(c)} }
	for want, narrow := range map[string]func(*repair.Request){
		"reserve 10.0.0.0/29, cordon new, evict web-1, evict web-2, evict web-8, claim 10.0.0.0/29, unreserve, uncordon new": func(r *repair.Request) { r.Nodes = []string{"a"} },
		wholeConsolidation: func(r *repair.Request) { r.Blocks = block("10.0.0.24/29") },
		"reserve 10.0.0.16/29, cordon new, evict x-4, evict x-5, evict x-6, claim 10.0.0.16/29, unreserve, uncordon new": func(r *repair.Request) { r.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.17")} },
	} {
		m, req := newPodCluster(t, shortOfBlocks), emptied
		narrow(&req)
		m.carry(t.Context(), t, m.plan(t, req), Options{})
		if got := strings.Join(m.did, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		m.clean(t)
	}
	left := strings.Replace(shortOfBlocks, "node new\n", "node new mine=10.0.0.24/29,b,new\n", 1) + "reserve 10.0.0.24/29 mine=b,new\n"
	for _, req := range []repair.Request{{Nodes: []string{"a"}}, {Blocks: block("10.0.0.0/29")}, {Pools: []string{"other"}}, {MaxSteps: 1}} {
		m := newPodCluster(t, left)
		req.Consolidate = true
		m.carry(t.Context(), t, m.plan(t, req), Options{})
		m.clean(t)
	}
	req := emptied
	req.Pools = []string{"other"}
	s, _ := newPodCluster(t, shortOfBlocks).Read(t.Context())
	if p := planner.Build(state.New(s, state.Options{}), req); len(p.Steps) > 0 || len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Reason, "but --pool") {
		t.Errorf("%v %+v", stepIDs(p), p.Refused)
	}
}

// TestUndoLeavesAnothers: undoing an old run does not remove a reservation and cordon that now
// belong to another consolidation.
func TestUndoLeavesAnothers(t *testing.T) {
	m := newPodCluster(t, strings.Replace(shortOfBlocks, "node a\n", "node a mine=10.0.0.24/29,b,other\n", 1)+"reserve 10.0.0.24/29 mine=b,other\n")
	x := newRun(m, m, nil, 0, Options{Workloads: m})
	if err := x.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := guards(repair.GuardConsolidation, "10.0.0.24/29 from b for new", repair.GuardForNode, "new")
	for _, s := range []*repair.Step{
		{Kind: repair.ReserveBlock, Target: state.Subject{Kind: state.KindBlock, CIDR: "10.0.0.24/29"}, Guards: old},
		{Kind: repair.CordonNode, Target: state.NodeSubject("a"), Guards: old},
	} {
		if v := (&repair.Begun{Site: x.Site, Log: &repair.StepLog{}, Step: s, Kind: planner.KindOf(s.Kind), Undo: true}).Action(); v.Do != nil || v.Status != repair.NotNeeded {
			t.Errorf("%s: %s %s", s.Kind, v.Status, v.What)
		}
	}
}

// TestBoundKeepsConsolidation: --max-steps does not cut a consolidation short.
func TestBoundKeepsConsolidation(t *testing.T) {
	for bound, want := range map[int]string{3: "", 6: wholeConsolidation} {
		m := newPodCluster(t, shortOfBlocks)
		m.carry(t.Context(), t, m.plan(t, emptied), Options{MaxSteps: bound})
		if got := strings.Join(m.did, ", "); got != want {
			t.Errorf("--max-steps %d: %s", bound, got)
		}
	}
}

// TestRehomeEnds: if a full node is not cordoned, no pod is evicted: its replacement might start
// there.
func TestRehomeEnds(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks)
	p := m.plan(t, repair.Request{Rehome: true, CordonFull: true})
	m.cordoned = true
	for id, o := range m.carry(t.Context(), t, p, Options{}) {
		if o.Step.Kind == repair.EvictPod && o.Status != repair.NotTried {
			t.Errorf("%s: %+v", id, o)
		}
	}
	if len(m.did) > 0 {
		t.Errorf("it did %v", m.did)
	}
}

// TestRehomeGoesOn: a pod that its budget protects stays, and the others are moved.
func TestRehomeGoesOn(t *testing.T) {
	m := newPodCluster(t, shortOfBlocks+"use 10.0.0.4 shop/second new of=ReplicaSet/api ready\n")
	p := m.plan(t, repair.Request{Rehome: true, CordonFull: true})
	evictions := 0
	for _, s := range p.Steps {
		if s.Kind == repair.EvictPod {
			evictions++
		}
	}
	m.refusals = len(evictRetries) + 1
	out := m.carry(t.Context(), t, p, Options{})
	if got := strings.Join(m.did, ", "); evictions != 2 || got != "cordon new, evict borrower, uncordon new" {
		t.Errorf("of %d evictions it did %s", evictions, got)
	}
	if o := out["evict-pod:10.0.0.4"]; o.Code != repair.SkipRefused {
		t.Errorf("the first: %+v", o)
	}
	m.clean(t)
}
