package apply_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// damage creates one case for each kind of step, and returns the step IDs in the order of a plan.
func (l *lab) damage() []string {
	l.t.Helper()
	ctx := l.t.Context()
	l.must(l.s.DeleteAffinity(ctx, "n3", labBlock(2)))
	l.must(l.s.Affinity(ctx, "n3", labBlock(1), "confirmed"))
	l.must(l.s.Affinity(ctx, "n3", labBlock(9), "confirmed"))
	l.claim("n1", labBlock(4))
	l.edit(blockCRD, "10-7-0-64-28", func(spec map[string]any) { spec["deleted"] = true })
	l.claim("n1", labBlock(3))
	l.edit(handleCRD, seeding.Handle("default", "web-n1"), func(spec map[string]any) {
		counts := spec["block"].(map[string]any)
		for cidr := range counts {
			counts[cidr] = int64(5)
		}
	})
	leaked := l.pod("n2", "leaver")
	l.must(l.s.DeletePod(ctx, "default", "leaver", false))
	l.must(l.c.Create(ctx, handleCRD, map[string]any{
		"metadata": map[string]any{"name": "nobody"},
		"spec":     map[string]any{"handleID": "nobody", "deleted": false, "block": map[string]any{"10.7.0.16/28": int64(1)}},
	}))
	l.must(l.s.Node(ctx, seeding.Node{Name: "off"}))
	l.claim("off", labBlock(5))
	_, err := l.s.Pod(ctx, seeding.Pod{
		Namespace: "default", Name: "borrower", Node: "n1", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["10.7.0.81"]`},
	})
	l.must(err)
	l.must(l.s.DeleteNode(ctx, "off"))
	l.must(l.c.Delete(ctx, handleCRD, "", seeding.Handle("default", "web-n3")))
	unrecorded := l.pod("n2", "unrecorded")
	l.must(l.s.ReleaseHandle(ctx, seeding.Handle("default", "unrecorded")))
	l.age()
	return []string{
		"restore-affinity:10.7.0.32/28",
		"delete-affinity:n3:10.7.0.16/28",
		"delete-affinity:n3:10.7.0.144/28",
		"finish-delete:IPAMBlock:10.7.0.64/28",
		"release-block:10.7.0.48/28",
		"disown-block:10.7.0.80/28",
		"create-handle:" + seeding.Handle("default", "web-n3"),
		"fix-handle-count:" + seeding.Handle("default", "web-n1"),
		"record-ip:" + unrecorded.String(),
		"release-ip:" + leaked.String(),
		"delete-handle:nobody",
	}
}

// TestEveryKind: one step of each kind is carried out on a real API server, with two observations
// where required. A second run finds nothing to do. Steps that can be undone are undone.
func TestEveryKind(t *testing.T) {
	for _, group := range testenv.Sample(t, 1, []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}) {
		t.Run(string(group), func(t *testing.T) {
			l := newLab(t)
			steps := l.damage()
			if group == testcluster.NativeV3 {
				l.native()
			}
			everyKind(t, l, steps)
		})
	}
}

func everyKind(t *testing.T, l *lab, steps []string) {
	t.Helper()
	p := l.plan(everything, steps...)
	var waits int
	r := l.apply(t.Context(), p, apply.Options{Wait: true, Waiting: func(time.Time) { waits++ }})
	var done, already []string
	for _, s := range steps {
		done, already = append(done, s+": done"), append(already, s+": already")
	}
	l.wantOutcomes(r, done...)
	if waits > 1 {
		t.Errorf("it waited %d times", waits)
	}
	l.settled()
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), already...)

	undone := l.undo(r)
	want := slices.Clone(steps)
	slices.Reverse(want)
	for i, s := range want {
		kind, _, _ := strings.Cut(s, ":")
		switch {
		case repair.Kind(kind) == repair.RestoreAffinity:
			want[i] += ": skipped Harm"
		case slices.Contains([]repair.Kind{repair.DeleteAffinity, repair.FixHandleCount, repair.CreateHandle, repair.RecordIP}, repair.Kind(kind)):
			want[i] += ": skipped Harm" // it would only restore damage
		case repair.Kind(kind) == repair.FinishDelete || repair.Kind(kind) == repair.ReleaseBlock || repair.Kind(kind) == repair.DisownBlock:
			want[i] += ": not-needed"
		default:
			want[i] += ": done"
		}
	}
	l.wantOutcomes(undone, want...)
	if !undone.Left() {
		t.Error("an affinity that its block needs was taken back")
	}
	for _, o := range undone.Outcomes {
		if o.Code == repair.SkipHarm && !regexp.MustCompile(`without the affinity|(restored|again): .`).MatchString(o.Reason) {
			t.Errorf("%s is refused, and not said why: %s", o.Step.ID, o.Reason)
		}
	}
	if a := l.spec(l.group.Resource("blockaffinities"), "n3-10-7-0-144-28"); a != nil {
		t.Errorf("the affinity that was deleted is back: %v", a)
	}
	// The undone objects are restored as they were, and are found again.
	if h := l.spec(l.group.Resource("ipamhandles"), "nobody"); h == nil || h["handleID"] != "nobody" {
		t.Errorf("the handle that was deleted: %v", h)
	}
	l.age()
	l.plan(everything, steps[9], steps[10])

	l.wantOutcomes(l.undo(r),
		steps[10]+": already", steps[9]+": already", steps[8]+": skipped Harm", steps[7]+": skipped Harm", steps[6]+": skipped Harm",
		steps[5]+": not-needed", steps[4]+": not-needed",
		steps[3]+": not-needed", steps[2]+": skipped Harm", steps[1]+": skipped Harm", steps[0]+": skipped Harm")
}

// TestStrictAffinity: this one setting is written and restored.
func TestStrictAffinity(t *testing.T) {
	l := newLab(t)
	on := true
	p := l.plan(repair.Request{StrictAffinity: &on}, "set-strict-affinity:default")
	r := l.apply(t.Context(), p, apply.Options{Wait: true})
	l.wantOutcomes(r, "set-strict-affinity:default: done")
	if c := l.spec(configCRD, "default"); c["strictAffinity"] != true || c["autoAllocateBlocks"] != true {
		t.Errorf("the configuration is %v", c)
	}
	l.wantOutcomes(l.undo(r), "set-strict-affinity:default: done")
	if c := l.spec(configCRD, "default"); c["strictAffinity"] != false || c["autoAllocateBlocks"] != true {
		t.Errorf("taken back, the configuration is %v", c)
	}
	l.wantOutcomes(l.undo(r), "set-strict-affinity:default: already")
}

// TestTooSoon: a step that needs two observations is not done before the grace period has passed,
// and nothing is written.
func TestTooSoon(t *testing.T) {
	l := newLab(t)
	l.must(l.s.Affinity(t.Context(), "n3", labBlock(1), "confirmed"))
	l.age()
	p := l.plan(everything, "delete-affinity:n3:10.7.0.16/28")
	p.Grace.Duration = time.Hour
	p.Seal()
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), "delete-affinity:n3:10.7.0.16/28: skipped TooSoon")
	if a := l.spec(affinityCRD, "n3-10-7-0-16-28"); a["state"] != "confirmed" {
		t.Errorf("the affinity was written: %v", a)
	}
}

// TestAnotherCluster: a plan applies only to the cluster that it was made for, with no override.
func TestAnotherCluster(t *testing.T) {
	l := newLab(t)
	l.claim("n1", labBlock(3))
	l.age()
	p := l.plan(everything, "release-block:10.7.0.48/28")
	for name, guid := range map[string]any{"another": "0123456789abcdef0123456789abcdef", "none": ""} {
		l.edit(infoCRD, "default", func(spec map[string]any) { spec["clusterGUID"] = guid })
		j := l.journal(journal.Header{Plan: p})
		if _, err := apply.Run(t.Context(), p, l.reader, l.writer(j), j, apply.Options{}); !errors.Is(err, apply.ErrOtherCluster) {
			t.Errorf("GUID %s: %v", name, err)
		}
	}
	if l.spec(blockCRD, "10-7-0-48-28") == nil {
		t.Error("the block is gone")
	}
}

// TestStaleSteps: changes between the plan and its second observation cause steps to be skipped,
// each with a reason, and the objects stay unchanged.
func TestStaleSteps(t *testing.T) {
	for name, c := range map[string]struct {
		before, between func(l *lab)
		step, want      string
		kept            func(l *lab) bool
	}{
		"a pod got an address of the empty block": {
			before: func(l *lab) { l.claim("n1", labBlock(3)) },
			between: func(l *lab) {
				for i := range 16 {
					l.pod("n1", "more-"+string(rune('a'+i)))
				}
			},
			step: "release-block:10.7.0.48/28", want: "skipped InUse",
			kept: func(l *lab) bool { return l.spec(blockCRD, "10-7-0-48-28") != nil },
		},
		"the node lost its other block": {
			before: func(l *lab) { l.claim("n1", labBlock(3)) },
			between: func(l *lab) {
				l.must(l.s.DeletePod(l.t.Context(), "default", "web-n1", true))
				l.must(l.s.ReleaseBlocks(l.t.Context(), "n1", labBlock(0), true))
			},
			step: "release-block:10.7.0.48/28", want: "skipped LastBlock",
			kept: func(l *lab) bool { return l.spec(blockCRD, "10-7-0-48-28") != nil },
		},
		"the block was released, and claimed by another": {
			before: func(l *lab) { l.claim("n1", labBlock(3)) },
			between: func(l *lab) {
				l.must(l.s.ReleaseBlocks(l.t.Context(), "n1", labBlock(3), true))
				l.claim("n2", labBlock(3))
			},
			step: "release-block:10.7.0.48/28", want: "already",
			kept: func(l *lab) bool { return l.spec(affinityCRD, "n2-10-7-0-48-28") != nil },
		},
		"the affinity's host claimed the block": {
			before: func(l *lab) { l.must(l.s.Affinity(l.t.Context(), "n3", labBlock(3), "confirmed")) },
			between: func(l *lab) {
				l.claim("n3", labBlock(3)) // the claim does not write an affinity that is already confirmed
			},
			step: "delete-affinity:n3:10.7.0.48/28", want: "skipped InUse",
			kept: func(l *lab) bool { return l.spec(affinityCRD, "n3-10-7-0-48-28") != nil },
		},
		"the affinity was written": {
			before: func(l *lab) { l.must(l.s.Affinity(l.t.Context(), "n3", labBlock(1), "confirmed")) },
			between: func(l *lab) {
				l.edit(affinityCRD, "n3-10-7-0-16-28", func(spec map[string]any) { spec["state"] = "pending" })
			},
			step: "delete-affinity:n3:10.7.0.16/28", want: "skipped",
			kept: func(l *lab) bool { return l.spec(affinityCRD, "n3-10-7-0-16-28") != nil },
		},
		"the affinity was deleted and created again": {
			before: func(l *lab) { l.must(l.s.Affinity(l.t.Context(), "n3", labBlock(1), "confirmed")) },
			between: func(l *lab) {
				l.must(l.s.DeleteAffinity(l.t.Context(), "n3", labBlock(1)))
				l.must(l.s.Affinity(l.t.Context(), "n3", labBlock(1), "confirmed"))
			},
			step: "delete-affinity:n3:10.7.0.16/28", want: "already", // the old one is gone; the new one is too young to be evaluated
			kept: func(l *lab) bool { return l.spec(affinityCRD, "n3-10-7-0-16-28") != nil },
		},
		"the affinity came back by itself": {
			before:  func(l *lab) { l.must(l.s.DeleteAffinity(l.t.Context(), "n3", labBlock(2))) },
			between: func(l *lab) { l.must(l.s.Affinity(l.t.Context(), "n3", labBlock(2), "confirmed")) },
			step:    "restore-affinity:10.7.0.32/28", want: "already",
			kept: func(l *lab) bool { return l.spec(affinityCRD, "n3-10-7-0-32-28") != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			c.before(l)
			l.age()
			p := l.plan(everything, c.step)
			c.between(l)
			isDue(p)
			r := l.apply(t.Context(), p, apply.Options{})
			if got := became(r)[0]; !strings.HasPrefix(got, c.step+": "+c.want) {
				t.Errorf("it came to %q (%s), want %q", got, r.Outcomes[0].Reason, c.want)
			}
			if !c.kept(l) {
				t.Error("an object that should have stayed is gone")
			}
		})
	}
}

// TestNodeComesBackInMidPlan: during the run, a node is deleted and created again under its name.
// It claims the block of the orphaned affinity that the next step would delete. It keeps both.
func TestNodeComesBackInMidPlan(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	l.must(l.s.Affinity(ctx, "back", labBlock(5), "confirmed"))
	l.must(l.s.Affinity(ctx, "gone", labBlock(6), "confirmed"))
	l.age()
	p := l.plan(everything, "delete-affinity:back:10.7.0.80/28", "delete-affinity:gone:10.7.0.96/28")
	slices.Reverse(p.Steps)
	p.Seal()
	r := l.apply(ctx, p, apply.Options{Wait: true, Progress: func(o repair.Outcome) {
		if o.Step.Target.Node == "gone" && o.Status == repair.Done {
			l.must(l.s.Node(ctx, seeding.Node{Name: "back"}))
			l.claim("back", labBlock(5))
			l.pod("back", "newcomer")
		}
	}})
	l.wantOutcomes(r, "delete-affinity:gone:10.7.0.96/28: done", "delete-affinity:back:10.7.0.80/28: skipped InUse")
	if a := l.spec(affinityCRD, "back-10-7-0-80-28"); a == nil || a["state"] != "confirmed" {
		t.Errorf("the affinity that came to life is %v", a)
	}
}

// TestReservedInMidRun: right before a node's empty block is released, a new reservation takes all
// addresses of the block that the node keeps. The empty block stays.
func TestReservedInMidRun(t *testing.T) {
	l := newLab(t)
	l.claim("n1", labBlock(3))
	l.age()
	p := l.plan(everything, "release-block:10.7.0.48/28")
	r := l.apply(t.Context(), p, apply.Options{Progress: func(o repair.Outcome) {
		if o.Status == "" {
			l.must(l.s.Reservation(t.Context(), "gateways", labBlock(0)))
		}
	}})
	l.wantOutcomes(r, "release-block:10.7.0.48/28: skipped LastBlock")
	if a := l.spec(affinityCRD, "n1-10-7-0-48-28"); a == nil || a["state"] != "confirmed" {
		t.Errorf("the affinity of the block is %v", a)
	}
}

// TestEditedByHandLive: a plan edited to name a block in use, with otherwise correct data, is
// refused because of the cluster's state.
func TestEditedByHandLive(t *testing.T) {
	l := newLab(t)
	l.claim("n1", labBlock(3))
	l.age()
	p := l.plan(everything, "release-block:10.7.0.48/28")
	objects, err := l.c.List(t.Context(), blockCRD)
	l.must(err)
	s := &p.Steps[0]
	s.ID, s.Target.CIDR, s.Target.Name, s.Target.Node = "release-block:10.7.0.16/28", "10.7.0.16/28", "10-7-0-16-28", "n2"
	for _, o := range objects {
		if o.GetName() != s.Target.Name {
			continue
		}
		for i := range s.Guards {
			switch g := &s.Guards[i]; g.Name {
			case repair.GuardName:
				g.Value = o.GetName()
			case repair.GuardUID:
				g.Value = string(o.GetUID())
			case repair.GuardOwner:
				g.Value = "host:n2"
			}
		}
	}
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), "release-block:10.7.0.16/28: skipped InUse")
	if l.spec(blockCRD, "10-7-0-16-28") == nil || l.spec(affinityCRD, "n2-10-7-0-16-28")["state"] != "confirmed" {
		t.Error("the block in use was touched")
	}
}

// threeEmpty gives n1 three empty blocks and returns the plan that releases them.
func (l *lab) threeEmpty() (*repair.Plan, []string) {
	l.t.Helper()
	var steps []string
	for i := 3; i < 6; i++ {
		l.claim("n1", labBlock(i))
		steps = append(steps, "release-block:"+labBlock(i).String())
	}
	l.age()
	return l.plan(everything, steps...), steps
}

// TestServerComesBack: the API server is killed during the run and started again; the run waits for
// it and continues.
func TestServerComesBack(t *testing.T) {
	l := newLab(t)
	p, steps := l.threeEmpty()
	waited := false
	r := l.apply(t.Context(), p, apply.Options{
		Progress: func(o repair.Outcome) {
			if o.Status == "" && o.Step.ID == steps[1] {
				l.c.StopAPIServer()
			}
		},
		Sleep: func(ctx context.Context, _ time.Duration) error {
			waited = true
			return l.c.StartAPIServer(ctx)
		},
	})
	if !waited {
		t.Error("it did not wait for the API server")
	}
	l.wantOutcomes(r, steps[0]+": done", steps[1]+": done", steps[2]+": done")
	l.settled()
}

// TestServerStaysAway: without the API server, the run ends, reports the remaining steps, and
// leaves nothing half-done. Applied again, it does the rest.
func TestServerStaysAway(t *testing.T) {
	l := newLab(t)
	p, steps := l.threeEmpty()
	j := l.journal(journal.Header{StartedAt: p.CreatedAt, Cluster: p.Cluster, Plan: p})
	r, err := apply.Run(t.Context(), p, &awayReader{viewedReader: l.reader}, l.writer(j), j, apply.Options{
		Sleep: l.passes,
		Progress: func(o repair.Outcome) {
			if o.Status == "" && o.Step.ID == steps[1] {
				l.c.StopAPIServer()
			}
		},
	})
	l.must(err)
	l.wantOutcomes(r, steps[0]+": done", steps[1]+": skipped Unread", steps[2]+": not-tried Unread")
	l.must(l.c.StartAPIServer(t.Context()))
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), steps[0]+": already", steps[1]+": done", steps[2]+": done")
	l.settled()
}

// awayReader asks an unavailable API server once. Each further attempt fails at once with the error
// that the first attempt returned after the client's own retries.
type awayReader struct {
	viewedReader
	err error
}

func (r *awayReader) Read(ctx context.Context) (s *blocks.Snapshot, err error) {
	if r.err == nil {
		s, r.err = r.viewedReader.Read(ctx)
	}
	return s, r.err
}

func (r *awayReader) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (s *blocks.Snapshot, err error) {
	if r.err == nil {
		s, r.err = r.viewedReader.Refresh(ctx, prev, refs)
	}
	return s, r.err
}

// TestInterruptedLive: Ctrl-C finishes the current object and leaves the rest.
func TestInterruptedLive(t *testing.T) {
	l := newLab(t)
	p, steps := l.threeEmpty()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j := l.journal(journal.Header{Plan: p, Cluster: p.Cluster})
	w := &cancelling{Writer: l.writer(j), at: 2, cancel: cancel}
	r, err := apply.Run(ctx, p, l.reader, w, j, apply.Options{})
	l.must(err)
	l.wantOutcomes(r, steps[0]+": done", steps[1]+": done", steps[2]+": not-tried Interrupted")
	l.wantOutcomes(l.apply(t.Context(), p, apply.Options{}), steps[0]+": already", steps[1]+": already", steps[2]+": done")
}

// cancelling is a writer that is interrupted when it starts to release the n-th block.
type cancelling struct {
	repair.Writer
	at     int
	cancel func()
}

func (c *cancelling) ReleaseBlock(ctx context.Context, block repair.ObjectRef, affinity, keeps *repair.ObjectRef) error {
	if c.at--; c.at == 0 {
		c.cancel()
	}
	return c.Writer.ReleaseBlock(ctx, block, affinity, keeps)
}

// TestNoJournalNothingWritten: without a journal nothing is written.
func TestNoJournalNothingWritten(t *testing.T) {
	l := newLab(t)
	p, steps := l.threeEmpty()
	before, err := l.c.List(t.Context(), affinityCRD)
	l.must(err)
	j := l.journal(journal.Header{Plan: p, Cluster: p.Cluster})
	l.must(j.Close())
	r, err := apply.Run(t.Context(), p, l.reader, l.writer(j), j, apply.Options{})
	l.must(err)
	l.wantOutcomes(r, steps[0]+": skipped Journal", steps[1]+": not-tried Journal", steps[2]+": not-tried Journal")
	after, err := l.c.List(t.Context(), affinityCRD)
	l.must(err)
	for i := range before {
		if len(after) != len(before) || before[i].GetResourceVersion() != after[i].GetResourceVersion() {
			t.Fatalf("affinities were written: %d, then %d", len(before), len(after))
		}
	}
}
