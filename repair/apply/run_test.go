package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

var emptyBlocks = repair.Request{EmptyBlocks: true}

func wantOutcomes(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what became of the steps (-want +got):\n%s", diff)
	}
}

// TestApply: the steps are done in the plan's order, and the journal has each step's start, changes
// and end. A second run writes nothing.
func TestApply(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	slept := 0
	r, err := f.apply(t, t.Context(), p, Options{Pace: time.Second, Sleep: func(context.Context, time.Duration) error { slept++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "done", "done")
	if r.Left() || slept != 2 || r.Cluster.GUID != p.Cluster.GUID {
		t.Errorf("left %v, pauses %d, cluster %q", r.Left(), slept, r.Cluster.GUID)
	}
	for i, name := range f.wrote {
		if name != p.Steps[i].Guard(repair.GuardName) {
			t.Errorf("write %d is to %s, not to %s", i, name, p.Steps[i].Guard(repair.GuardName))
		}
	}
	var lines []string
	for _, e := range entries(t, r.Journal) {
		lines = append(lines, string(e.Event)+" "+e.Step+" "+string(e.Status))
	}
	var want []string
	for _, s := range p.Steps {
		want = append(want, "start "+s.ID+" ", "change "+s.ID+" ", "end "+s.ID+" done")
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("the journal (-want +got):\n%s", diff)
	}

	f.wrote = nil
	wantOutcomes(t, f.mustApply(t, p, Options{}), "already", "already")
	if len(f.wrote) > 0 {
		t.Errorf("applied a second time, it wrote %v", f.wrote)
	}
}

// TestMaxSteps: the limit also applies to the run.
func TestMaxSteps(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	wantOutcomes(t, f.mustApply(t, p, Options{MaxSteps: 1}), "done", "not-tried MaxSteps")
	wantOutcomes(t, f.mustApply(t, p, Options{MaxSteps: 1}), "already", "done")
}

// TestNotThisPlan: a plan that is invalid or for another cluster is refused as a whole, and nothing
// is written.
func TestNotThisPlan(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeCluster, *repair.Plan)
		want   error
		text   string
	}{
		"another cluster":         {func(_ *fakeCluster, p *repair.Plan) { p.Cluster.GUID = "other" }, ErrOtherCluster, "other"},
		"plan without a cluster":  {func(_ *fakeCluster, p *repair.Plan) { p.Cluster.GUID = "" }, ErrOtherCluster, "GUID was not read"},
		"cluster without a GUID":  {func(f *fakeCluster, _ *repair.Plan) { f.s.Cluster.GUID = "" }, ErrOtherCluster, "cannot be read"},
		"both without":            {func(f *fakeCluster, p *repair.Plan) { f.s.Cluster.GUID, p.Cluster.GUID = "", "" }, ErrOtherCluster, "GUID"},
		"another kind":            {func(_ *fakeCluster, p *repair.Plan) { p.Kind = audit.ReportKind }, ErrNoPlan, "AuditReport"},
		"of Calico's own etcd":    {func(_ *fakeCluster, p *repair.Plan) { p.Cluster.Datastore = "etcdv3" }, ErrNoPlan, "its own etcd"},
		"a version to come":       {func(_ *fakeCluster, p *repair.Plan) { p.APIVersion = "calico-audit/v9" }, ErrNoPlan, "v9"},
		"no time":                 {func(_ *fakeCluster, p *repair.Plan) { p.CreatedAt = audit.Time{} }, ErrNoPlan, "when it was made"},
		"made in the future":      {func(f *fakeCluster, p *repair.Plan) { p.CreatedAt.Time = f.now.Add(time.Hour) }, ErrNoPlan, "make a new one"},
		"a grace below nothing":   {func(_ *fakeCluster, p *repair.Plan) { p.Grace.Duration = -time.Hour }, ErrNoPlan, "grace"},
		"the datastore is locked": {func(f *fakeCluster, _ *repair.Plan) { f.s.Info.Locked = true }, ErrLocked, "unlocked"},
		"nothing can be read":     {func(f *fakeCluster, _ *repair.Plan) { f.unread = 99 }, ErrUnread, "connection refused"},
		"its identity is unread": {func(f *fakeCluster, _ *repair.Plan) {
			f.s.Cluster.GUID = ""
			f.s.Gaps = append(f.s.Gaps, blocks.Gap{Resource: blocks.ClusterInfos, Reason: "it went away"})
		}, ErrUnread, "went away"},
		"a stage before its time": {func(f *fakeCluster, p *repair.Plan) {
			p.Request = p.Request.Stage(repair.RecordRunning)
			f.s.Workloads = append(f.s.Workloads, &blocks.Workload{Meta: blocks.Meta{Name: "calico-kube-controllers-x"}, Namespace: "kube-system", HostNetwork: true})
		}, ErrStage, "stage 1 (stop Calico's collector) is not done"},
		"no clock": {func(f *fakeCluster, _ *repair.Plan) { f.now = time.Time{} }, ErrUnread, "time"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storyDrained(t)
			p := f.plan(t, emptyBlocks)
			c.change(f, p)
			_, err := f.apply(t, t.Context(), p, Options{})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.want, c.text)
			}
			if len(f.wrote) > 0 {
				t.Errorf("it wrote %v", f.wrote)
			}
		})
	}
}

// TestEditedByHand: editing a plan gains nothing. Not a checksum but the state of the cluster
// prevents it.
func TestEditedByHand(t *testing.T) {
	inUse := func(f *fakeCluster) *blocks.Block {
		for i := range f.s.Blocks {
			if b := &f.s.Blocks[i]; b.InUse() > 0 {
				return b
			}
		}
		panic("the example has no block in use")
	}
	setGuard := func(s *repair.Step, name, value string) {
		for i := range s.Guards {
			if s.Guards[i].Name == name {
				s.Guards[i].Value = value
			}
		}
	}
	for name, c := range map[string]struct {
		edit func(*fakeCluster, *repair.Plan, *repair.Step)
		want string
	}{
		"to name a block in use, all through": {func(f *fakeCluster, _ *repair.Plan, s *repair.Step) {
			b := inUse(f)
			s.Target.CIDR, s.Target.Name, s.Target.Node = b.CIDR.String(), b.Name, b.Owner.Node()
			s.ID = string(s.Kind) + ":" + s.Target.CIDR
			setGuard(s, repair.GuardName, b.Name)
			setGuard(s, repair.GuardUID, b.UID())
			setGuard(s, repair.GuardVersion, b.ResourceVersion())
			setGuard(s, repair.GuardOwner, b.Owner.Affinity())
		}, "skipped InUse"},
		"to name a block in use in the target alone": {func(f *fakeCluster, _ *repair.Plan, s *repair.Step) {
			s.Target.CIDR = inUse(f).CIDR.String()
		}, "skipped Unknown"},
		"an ID of another block": {func(f *fakeCluster, _ *repair.Plan, s *repair.Step) {
			s.ID = "release-block:" + inUse(f).CIDR.String()
		}, "skipped InUse"},
		"a kind that there is none of": {func(_ *fakeCluster, _ *repair.Plan, s *repair.Step) { s.Kind = "drop-everything" }, "skipped Unknown"},
		"another kind":                 {func(_ *fakeCluster, _ *repair.Plan, s *repair.Step) { s.Kind = repair.DeleteAffinity }, "skipped Unknown"},
		"no ID":                        {func(_ *fakeCluster, _ *repair.Plan, s *repair.Step) { s.ID = "" }, "skipped NotDerived"},
		"another UID":                  {func(_ *fakeCluster, _ *repair.Plan, s *repair.Step) { setGuard(s, repair.GuardUID, "x") }, "skipped Changed"},
		"no guards":                    {func(_ *fakeCluster, _ *repair.Plan, s *repair.Step) { s.Guards = nil }, "skipped Changed"},
		"not asked for":                {func(_ *fakeCluster, p *repair.Plan, _ *repair.Step) { p.Request = repair.Request{LeakedIPs: true} }, "skipped NotDerived"},
		"the same step twice":          {func(_ *fakeCluster, p *repair.Plan, _ *repair.Step) { p.Steps[1] = p.Steps[0] }, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storyDrained(t)
			p := f.plan(t, emptyBlocks)
			c.edit(f, p, &p.Steps[0])
			got := f.mustApply(t, p, Options{})
			second := "done"
			if name == "the same step twice" {
				second = "skipped Duplicate"
			}
			if name == "not asked for" {
				second = c.want
			}
			wantOutcomes(t, got, c.want, second)
			held := inUse(f)
			for _, w := range f.wrote {
				if w == held.Name {
					t.Errorf("it wrote to %s, which is in use", w)
				}
			}
		})
	}
}

// TestTwoObservations: before the grace period has passed since the plan, the step is skipped, or
// the run waits for all such steps once and then reads everything again.
func TestTwoObservations(t *testing.T) {
	req := repair.Request{EmptyBlocks: true, ObserveTwice: true}
	storyDrained := func(t *testing.T) *fakeCluster {
		f := storyDrained(t)
		f.s.Cluster.Datastore = "kubernetes"
		return f
	}
	f := storyDrained(t)
	p := f.plan(t, req)
	r, err := f.apply(t, t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped TooSoon", "skipped TooSoon")
	due := phrase.Time(p.CreatedAt.Add(state.DefaultGrace))
	if !strings.Contains(r.Outcomes[0].Reason, due) {
		t.Errorf("the reason does not say when: %q, want %s", r.Outcomes[0].Reason, due)
	}

	var waits []time.Time
	wantOutcomes(t, f.mustApply(t, p, Options{Wait: true, Waiting: func(u time.Time) { waits = append(waits, u) }}), "done", "done")
	if len(waits) != 1 || f.now.Before(p.CreatedAt.Add(state.DefaultGrace)) {
		t.Errorf("waits %v, until %s", waits, f.now)
	}

	f = storyDrained(t)
	p = f.plan(t, req)
	f.now = f.now.Add(state.DefaultGrace)
	wantOutcomes(t, f.mustApply(t, p, Options{}), "done", "done")

	f = storyDrained(t)
	p = f.plan(t, req)
	f.now = f.now.Add(state.DefaultGrace)
	for i := range f.s.Blocks {
		f.s.Blocks[i].Pin = blocks.PinOf(f.s.Blocks[i].UID(), f.s.Blocks[i].ResourceVersion()+"1") // another client wrote them in between
	}
	wantOutcomes(t, f.mustApply(t, p, Options{}), "skipped Changed", "skipped Changed")
}

// TestFilesAreNoObservation: the time of a plan made from files may be long before the files were
// read. Only the two observations of this run count.
func TestFilesAreNoObservation(t *testing.T) {
	f := storyDrained(t)
	f.s.Cluster.Datastore = "files"
	p := f.plan(t, repair.Request{EmptyBlocks: true, ObserveTwice: true})
	f.now = f.now.Add(24 * time.Hour)
	r, err := f.apply(t, t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped TooSoon", "skipped TooSoon")
	if !strings.Contains(r.Outcomes[0].Reason, "--wait") {
		t.Errorf("the reason does not say what to do: %q", r.Outcomes[0].Reason)
	}
	wantOutcomes(t, f.mustApply(t, p, Options{Wait: true}), "done", "done")
}

// TestChangedAtTheLastMoment: a step is derived again a few times, then skipped.
func TestChangedAtTheLastMoment(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	first, tries := p.Steps[0].Guard(repair.GuardName), 0
	f.before = func(name string) error {
		if name == first {
			tries++
			return fmt.Errorf("block %s: %w", name, repair.ErrChanged)
		}
		return nil
	}
	wantOutcomes(t, f.mustApply(t, p, Options{}), "skipped Changed", "done")
	if tries != maxDerivations {
		t.Errorf("%d tries, want %d", tries, maxDerivations)
	}
}

// TestStops: if nothing can be written, the run does not try every step.
func TestStops(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.before = func(string) error { return errors.New("forbidden") }
	x := newRun(f, f, newTestJournal(t), p.Grace.Duration, Options{})
	if err := x.begin(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	f.journal = x.journal
	a := &applying{run: x, plan: p, request: p.Request, seen: map[string]bool{}}
	var got []string
	for range maxFailures + 1 {
		a.seen = map[string]bool{}
		o := x.each(t.Context(), &p.Steps[0], func(context.Context) repair.Outcome { return a.step(t.Context(), &p.Steps[0]) })
		got = append(got, strings.TrimSpace(string(o.Status)+" "+string(o.Code)))
	}
	wantOutcomes(t, got, "failed", "failed", "failed", "not-tried Stopped")
}

// TestUnread: a failed reading is retried for a while; then the run ends without a write.
func TestUnread(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	down := len(retries) // available again just in time
	wantOutcomes(t, f.mustApply(t, p, Options{Progress: func(o repair.Outcome) {
		if o.Status == "" {
			f.unread, down = down, 0
		}
	}}), "done", "done")

	f = storyDrained(t)
	r, err := f.apply(t, t.Context(), p, Options{Progress: func(repair.Outcome) { f.unread = 99 }})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Unread", "not-tried Unread")
	if len(f.wrote) > 0 || !strings.Contains(r.Outcomes[1].Reason, "connection refused") {
		t.Errorf("wrote %v; %q", f.wrote, r.Outcomes[1].Reason)
	}
}

// TestInterrupted: the current step is finished and verified, and the rest is not tried.
func TestInterrupted(t *testing.T) {
	f := storyDrained(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.before = func(string) error { cancel(); return nil }
	r, err := f.apply(t, ctx, f.plan(t, emptyBlocks), Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "done", "not-tried Interrupted")
	if len(f.wrote) != 1 || !r.Left() {
		t.Errorf("wrote %v, left %v", f.wrote, r.Left())
	}
}

// TestNoJournalNoWrite: a change that cannot be recorded is not made.
func TestNoJournalNoWrite(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	j := newTestJournal(t)
	f.journal = j
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), p, f, f, j, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Journal", "not-tried Journal")
	if len(f.wrote) > 0 {
		t.Errorf("it wrote %v", f.wrote)
	}
}

// TestOldPlan: steps of an outdated plan are skipped, each with a reason.
func TestOldPlan(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeCluster, *blocks.Block)
		want   string
	}{
		"an address was given out": {func(_ *fakeCluster, b *blocks.Block) {
			b.Ordinals = append([]int32{0}, b.Ordinals[1:]...)
			b.Attributes = []blocks.Attributes{{Handle: "h", HasHandle: true, Node: b.Owner.Node()}}
			b.Unallocated = b.Unallocated[:0]
		}, "skipped"},
		"the block is gone, and its affinity": {func(f *fakeCluster, b *blocks.Block) {
			dropAffinity(f.s, blocks.AffinityName(b.Owner.Node(), b.CIDR))
			dropBlock(f.s, b.Name)
		}, "already"},
		"the block alone is gone":  {func(f *fakeCluster, b *blocks.Block) { dropBlock(f.s, b.Name) }, "skipped Gone"},
		"it is another object now": {func(_ *fakeCluster, b *blocks.Block) { b.Pin = blocks.PinOf("other", b.ResourceVersion()) }, "skipped Changed"},
		"another node owns it": {func(_ *fakeCluster, b *blocks.Block) {
			b.Owner.Name = "new-1"
		}, "skipped"},
		"it was written just now": {func(f *fakeCluster, b *blocks.Block) { b.Written = blocks.TimeOf(f.now) }, "skipped TooYoung"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storyDrained(t)
			p := f.plan(t, emptyBlocks)
			for i := range f.s.Blocks {
				if b := &f.s.Blocks[i]; b.CIDR.String() == p.Steps[0].Target.CIDR {
					c.change(f, b)
					break
				}
			}
			got := f.mustApply(t, p, Options{})
			if !strings.HasPrefix(got[0], c.want) {
				t.Errorf("it came to %q, want %q", got[0], c.want)
			}
			for _, w := range f.wrote {
				if w == p.Steps[0].Guard(repair.GuardName) {
					t.Error("it was written all the same")
				}
			}
		})
	}
}

// TestLongRun: from time to time everything is read again, not only the objects of the next step.
func TestLongRun(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.whole = 0
	wantOutcomes(t, f.mustApply(t, p, Options{}), "done", "done")
	if f.whole != 1 {
		t.Errorf("a short run reads everything %d times", f.whole)
	}
	f = storyDrained(t)
	f.whole = 0
	wantOutcomes(t, f.mustApply(t, p, Options{Pace: 2 * maxAge}), "done", "done")
	if f.whole != 2 {
		t.Errorf("a long run reads everything %d times, want 2", f.whole)
	}
}

// TestConfirm: the plan of two readings has only the steps that both give, and its numbers follow
// from these.
func TestConfirm(t *testing.T) {
	f := storyDrained(t)
	first := f.plan(t, emptyBlocks)
	s, err := f.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := state.New(s, state.Options{})
	same := planner.Confirm(first, second, emptyBlocks)
	if diff := cmp.Diff(first, same, cmp.Comparer(func(a, b blocks.Count) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Errorf("two readings that agree change the plan (-first +confirmed):\n%s", diff)
	}

	only := *first
	only.Steps = first.Steps[1:]
	got := planner.Confirm(&only, second, emptyBlocks)
	if len(got.Steps) != 1 || got.Steps[0].ID != first.Steps[1].ID {
		t.Fatalf("the steps are %+v", got.Steps)
	}
	if len(got.Refused) != 1 || got.Refused[0].Code != repair.RefusedUnconfirmed || got.Refused[0].Target != first.Steps[0].Target {
		t.Errorf("refused: %+v", got.Refused)
	}
	if free := got.After[0].Blocks.Allocatable; free.Cmp(blocks.CountOf(1)) != 0 {
		t.Errorf("one step frees %s blocks to claim", free)
	}

	only.Steps = []repair.Step{first.Steps[0], first.Steps[1]}
	only.Steps[0].Guards = guards(repair.GuardUID, "another")
	if got := planner.Confirm(&only, second, emptyBlocks); len(got.Steps) != 1 {
		t.Errorf("an object that was replaced between the readings is in the plan: %+v", got.Steps)
	}

	bounded := emptyBlocks
	bounded.MaxSteps = 1
	got = planner.Confirm(first, second, bounded)
	if len(got.Steps) != 1 || len(got.Refused) != 1 || got.Refused[0].Code != repair.RefusedLimit || got.Request.MaxSteps != 1 {
		t.Errorf("bounded to one step: %+v, refused %+v", got.Steps, got.Refused)
	}
}

// TestApart: an allocation of a virtual machine is observed twice at least five minutes apart, even
// if the plan's grace period is shorter. Calico's own garbage collector waits as long.
func TestApart(t *testing.T) {
	const state = `
pool pods 10.0.0.0/24
node n1
pod shop/x n1
vm none
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
alloc 10.0.0.1 handle=k8s-pod-network.vmi.shop.gone
handle k8s-pod-network.vmi.shop.gone 10.0.0.0/26=1
`
	req := repair.Request{LeakedIPs: true, WithoutHostEvidence: true}
	for after, soon := range map[time.Duration]bool{2 * time.Minute: true, 5 * time.Minute: false} {
		snap, err := statedsl.Parse(state)
		if err != nil {
			t.Fatal(err)
		}
		snap.Cluster.Datastore = "kubernetes"
		f := &fakeCluster{s: snap, now: snap.Cluster.TakenAt}
		p := f.plan(t, req)
		if len(p.Steps) != 1 {
			t.Fatalf("steps %v, refused %+v", stepIDs(p), p.Refused)
		}
		p.Grace.Duration = time.Minute
		p.Seal()
		f.now = f.now.Add(after)
		// The in-memory cluster releases nothing: the request is enough.
		if got := f.mustApply(t, p, Options{}); len(got) != 1 || got[0] != "failed" && !soon || got[0] != "skipped TooSoon" && soon {
			t.Errorf("after %s: %v; too soon: %t", after, got, soon)
		}
	}
}

// fullDisk records one change and no others.
type fullDisk struct{ *journal.Journal }

func (d fullDisk) Record(c repair.Change) error { return errors.Join(d.Journal.Record(c), d.Close()) }

// TestJournalEndsMidStep: a step whose first write could be recorded, and the next not, is half-done,
// and its outcome says so.
func TestJournalEndsMidStep(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	j := newTestJournal(t)
	f.journal, f.leaves, f.lost = fullDisk{j}, true, errors.New("the journal is full")
	r, err := Run(t.Context(), p, f, f, j, Options{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "failed", "not-tried Journal")
	if len(f.wrote) != 1 || !strings.Contains(r.Outcomes[0].Reason, "the journal is full") {
		t.Errorf("it wrote %v: %s", f.wrote, r.Outcomes[0].Reason)
	}
}

// TestJournalCannotBeMade: if the journal cannot be created after all, the run ends before anything
// is written.
func TestJournalCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Create(filepath.Join(dir, "j.jsonl"), journal.Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.journal = j
	r, err := Run(t.Context(), p, f, f, j, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Journal", "not-tried Journal")
	if len(f.wrote) > 0 || r.Journal != "" {
		t.Errorf("it wrote %v, journal %q", f.wrote, r.Journal)
	}
}

// entries returns the lines of a journal.
func entries(t *testing.T, path string) []journal.Entry {
	t.Helper()
	f, err := journal.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f.Entries
}

// TestUsedInBetween: a block that was used after the plan was made, and has been empty again for
// long enough, no longer matches the plan and stays.
func TestUsedInBetween(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.now = f.now.Add(2 * time.Hour)
	f.s.Blocks = slices.Clone(f.s.Blocks)
	for i := range f.s.Blocks {
		if b := &f.s.Blocks[i]; b.CIDR.String() == p.Steps[0].Target.CIDR {
			b.Written = blocks.TimeOf(f.now.Add(-time.Hour))
		}
	}
	r, err := f.apply(t, t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Changed", "done")
	if why := r.Outcomes[0].Reason; !strings.Contains(why, "emptySince") {
		t.Errorf("the reason is %q", why)
	}
}

// TestClusterChangesInMidRun: by the second observation, the connection may lead to another
// cluster, for example after a change of the kubeconfig. Nothing is written there.
func TestClusterChangesInMidRun(t *testing.T) {
	f := storyDrained(t)
	f.s.Cluster.Datastore = "kubernetes"
	p := f.plan(t, repair.Request{EmptyBlocks: true, ObserveTwice: true})
	got := f.mustApply(t, p, Options{Wait: true, Sleep: func(ctx context.Context, d time.Duration) error {
		f.now, f.s.Cluster.GUID = f.now.Add(d), "another"
		return ctx.Err()
	}})
	wantOutcomes(t, got, "skipped Unread", "not-tried Unread")
	if len(f.wrote) > 0 {
		t.Errorf("it wrote %v", f.wrote)
	}
}

// TestRestless: a step is not derived while the objects on which it depends lead to further ones
// that were not read.
func TestRestless(t *testing.T) {
	f := storyDrained(t)
	x, n := newRun(f, f, newTestJournal(t), 0, Options{}), 0
	if err := x.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	kind := *planner.KindOf(repair.ReleaseBlock)
	kind.AddRefs = func(r *repair.Refs, _ *repair.Step) {
		n++
		r.One(blocks.Handles, fmt.Sprint("h", n))
	}
	p := f.plan(t, emptyBlocks)
	a := &applying{run: x, plan: p, request: p.Request}
	if derived, o := a.observe(t.Context(), &kind, &p.Steps[0]); derived != nil || o.Code != repair.SkipChanged {
		t.Errorf("derived %v, %s %s (%s)", derived, o.Status, o.Code, o.Reason)
	}
}
