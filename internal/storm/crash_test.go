package storm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// EnvEveryWrite makes the crash tests try every write, before and after, instead of
// a sample that the seed decides.
const EnvEveryWrite = "CALICO_AUDIT_EVERY_WRITE"

// crash is where a repair is killed, and how it goes on.
type crashPoint struct {
	k      int
	after  bool
	resume bool // with the journal; else a new plan
}

func (p crashPoint) String() string {
	when, then := "before", "planned anew"
	if p.after {
		when = "after"
	}
	if p.resume {
		then = "resumed"
	}
	return fmt.Sprintf("%s-write-%d-%s", when, p.k, strings.ReplaceAll(then, " ", "-"))
}

// requests are what is repaired and killed: each kind by itself, and all at once.
func requests() map[string]repair.Request {
	strict := true
	all := everything
	all.StrictAffinity = &strict
	return map[string]repair.Request{
		"empty-blocks":       {EmptyBlocks: true},
		"orphan-affinities":  {OrphanAffinities: true},
		"missing-affinities": {MissingAffinities: true},
		"leaked-ips":         {LeakedIPs: true},
		"leaked-handles":     {LeakedHandles: true},
		"soft-deleted":       {SoftDeleted: true},
		"strict-affinity":    {StrictAffinity: &strict},
		"all":                all,
	}
}

// stepKinds are the kinds of step that the ruin must give work to.
var stepKinds = []repair.Kind{
	repair.ReleaseBlock, repair.DeleteAffinity, repair.RestoreAffinity, repair.ReleaseIP,
	repair.DeleteHandle, repair.FixHandleCount, repair.FinishDelete, repair.SetStrictAffinity,
}

func TestCrashAtEveryWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(seed(t), 0))
	for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
		t.Run(strings.ReplaceAll(string(group), "/", "-"), func(t *testing.T) {
			x := newRuined(t, group)
			did := map[repair.Kind]bool{}
			all := requests()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				t.Run(name, func(t *testing.T) { x.crashes(t, all[name], r, did) })
			}
			for _, k := range stepKinds {
				if !did[k] {
					t.Errorf("no step of kind %s was carried out", k)
				}
			}
		})
	}
}

// outcome is what comes of a repair that nothing disturbs.
type outcome struct {
	writes   []Write
	after    map[string]string // the essence right after it
	healed   map[string]string // and after all other repairs, too
	findings map[string]audit.Severity
}

// crashes repairs without a crash, to see what comes of it, and then with one at
// each write or at some of them.
func (x *ruined) crashes(t *testing.T, request repair.Request, r *rand.Rand, did map[repair.Kind]bool) {
	plan := x.plan(t, request)
	if len(plan.Steps) == 0 {
		t.Fatalf("there is nothing to repair; refused: %+v", plan.Refused)
	}
	before := len(x.gate.Writes())
	res, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), "journal"), repair.ApplyOptions{})
	must(t, err)
	for _, o := range res.Outcomes {
		if o.Open() {
			t.Errorf("without a crash, %s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
		did[o.Step.Kind] = did[o.Step.Kind] || o.Status == repair.Done
	}
	x.unharmed(t)
	want := &outcome{writes: x.gate.Writes()[before:], after: x.essence(t), findings: map[string]audit.Severity{}}
	for _, f := range audit.Run(x.state(t), nil).Findings {
		want.findings[f.Fingerprint] = f.Severity
	}
	x.again(t, with(request))
	want.healed = x.essence(t)
	t.Logf("%d steps, %d writes", len(plan.Steps), len(want.writes))
	for _, p := range points(len(want.writes), r) {
		t.Run(p.String(), func(t *testing.T) { x.crash(t, request, p, want) })
	}
}

// with asks for everything, beside what a request asks for: what a release leaves
// half-done is an affinity without a block, or an object that is marked deleted,
// which other kinds than the release complete.
func with(request repair.Request) repair.Request {
	all := everything
	all.StrictAffinity = request.StrictAffinity
	return all
}

// points are all points of n writes, or a sample of them.
func points(n int, r *rand.Rand) []crashPoint {
	var all []crashPoint
	for k := range n {
		for i := range 4 {
			all = append(all, crashPoint{k: k + 1, after: i&1 != 0, resume: i&2 != 0})
		}
	}
	if everyWrite() {
		return all
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 1+n/10)]
}

func (x *ruined) crash(t *testing.T, request repair.Request, p crashPoint, want *outcome) {
	write := want.writes[p.k-1]
	plan := x.plan(t, request)
	before := x.state(t)
	journal := filepath.Join(t.TempDir(), "journal")
	died := x.tool.killed(t.Context(), x.gate, p.k, p.after, plan, journal)
	if !died {
		t.Fatalf("it ended before it came to write %d (%s)", p.k, write)
	}
	x.unharmed(t)
	file, err := repair.ReadJournal(journal)
	must(t, err)
	broke := brokeOff(file)
	for _, w := range Worse(before, x.state(t), broke, want.findings) {
		t.Errorf("after it died in a %s step, at %s, worse than before: %s", broke, write, w)
	}
	if p.resume {
		res, err := x.tool.resume(t.Context(), journal, repair.ApplyOptions{})
		must(t, err)
		for _, o := range res.Outcomes {
			if o.Open() {
				t.Errorf("resumed after it died in a %s step, at %s: %s is %s: %s %s", broke, write, o.Step.ID, o.Status, o.Code, o.Reason)
			}
		}
		x.is(t, want.after, fmt.Sprintf("resumed after it died in a %s step, at %s", broke, write))
		return
	}
	heals := x.again(t, with(request))
	x.is(t, x.confirmed(t, want.healed, heals), fmt.Sprintf("repaired after it died in a %s step, at %s", broke, write))
}

// is fails the test unless nobody was harmed and the state comes down to what it
// should be.
func (x *ruined) is(t *testing.T, want map[string]string, when string) {
	t.Helper()
	x.unharmed(t)
	for _, d := range Differ(want, x.essence(t)) {
		t.Errorf("%s: %s", when, d)
	}
}

// confirmed returns what should be, but with affinities that are left for Calico to
// confirm as they are; each is confirmed by its node's next allocation.
func (x *ruined) confirmed(t *testing.T, want map[string]string, heals []repair.Refusal) map[string]string {
	t.Helper()
	now := x.essence(t)
	want = maps.Clone(want)
	for _, h := range heals {
		name := "blockaffinities/" + h.Target.Name
		pending := strings.Replace(want[name], `"state":"confirmed"`, `"state":"pending"`, 1)
		if now[name] != pending {
			continue
		}
		want[name] = pending
		if x.group != testcluster.CRDv1 {
			continue // Calico's client of this release cannot write it
		}
		x.heals(t, h.Target.Node, h.Target.Name)
	}
	return want
}

// heals has a node allocate an address and give it back, which must confirm its
// affinity, and brings everything else back as it was.
func (x *ruined) heals(t *testing.T, node, affinity string) {
	t.Helper()
	ctx := t.Context()
	before, err := TakeImage(ctx, x.Cluster)
	must(t, err)
	handle := "k8s-pod-network.heals"
	_, err = x.ruin.client.autoAssign(ctx, ipam.AutoAssignArgs{
		Num4: 1, HandleID: &handle, Hostname: node, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Attrs: map[string]string{ipam.AttributeNode: node},
	})
	must(t, err)
	a, err := x.Get(ctx, x.group.Resource("blockaffinities"), "", affinity)
	must(t, err)
	if state, _, _ := unstructured.NestedString(a.Object, "spec", "state"); state != "confirmed" {
		t.Errorf("%s was left %s for its node to confirm, and the node's next allocation has not", affinity, state)
	}
	must(t, before.Restore(ctx, x.Cluster))
}

// brokeOff is the kind of the step that a run died in.
func brokeOff(f *repair.JournalFile) repair.Kind {
	for i := range f.Plan.Steps {
		if s := &f.Plan.Steps[i]; f.Started(s.ID) {
			return s.Kind
		}
	}
	// It may have come to write down how the step ended.
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if f.Entries[i].Event == repair.EventStart {
			return f.Step(f.Entries[i].Step).Kind
		}
	}
	return ""
}

// again repairs with new plans until there is nothing left to do, which must not
// take more than four. It returns what is left for Calico to heal.
func (x *ruined) again(t *testing.T, request repair.Request) (heals []repair.Refusal) {
	t.Helper()
	repairs, begun := 0, time.Now()
	for range 20 {
		plan, err := x.tool.plan(t.Context(), request, 0)
		must(t, err)
		if len(plan.Steps) == 0 {
			// Times are written in whole seconds: only then is anything old enough
			// to be spoken of.
			if wait := time.Until(begun.Add(1100 * time.Millisecond)); wait > 0 || waits(plan) {
				time.Sleep(max(wait, 100*time.Millisecond))
				continue
			}
			return slices.DeleteFunc(plan.Refused, func(r repair.Refusal) bool { return r.Code != repair.RefusedHeals })
		}
		if repairs++; repairs > 4 {
			t.Fatalf("after four repairs there are still steps: %s", plan.Steps[0].ID)
		}
		res, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), fmt.Sprint("journal-", repairs)), repair.ApplyOptions{})
		must(t, err)
		for _, o := range res.Outcomes {
			if o.Open() {
				t.Logf("repair %d: %s is %s: %s %s", repairs, o.Step.ID, o.Status, o.Code, o.Reason)
			}
		}
	}
	t.Fatal("something stays too young to be repaired")
	return nil
}
