package storm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// crashPoint is the point at which a repair is killed, and the way it continues.
type crashPoint struct {
	k      int
	after  bool
	resume bool // with the journal; otherwise with a new plan
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

// requests returns the repairs that are killed: each kind alone, and all together.
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
		"dead-nodes":         {DeadNodes: true},
		"unrecorded-ips":     {UnrecordedIPs: true},
		"missing-handles":    {MissingHandles: true},
		"strict-affinity":    {StrictAffinity: &strict},
		"all":                all,
	}
}

// groups are the API groups of Calico's objects.
var groups = []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}

// TestCrashAtEveryWrite kills a repair before or after a write. No address in use may be
// harmed, and the next run must mend anything that is worse than before. If resumed or
// planned again, the repair must reach the result of an undisturbed run. A sample tries some of
// the requests, in one of the API groups.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	s := testenv.Seed(t)
	names := testenv.Sample(t, 4, slices.Sorted(maps.Keys(requests())))
	for _, group := range testenv.Sample(t, 1, groups) {
		t.Run(strings.ReplaceAll(string(group), "/", "-"), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(s, uint64(10+slices.Index(groups, group))))
			x := newDamaged(t, group)
			did, whole := map[repair.Kind]bool{}, false
			all := requests()
			for _, name := range names {
				whole = whole || name == "all"
				t.Run(name, func(t *testing.T) { x.crashes(t, all[name], r, did) })
			}
			for _, k := range stepKinds {
				if whole && !did[k] {
					t.Errorf("no step of kind %s was carried out", k)
				}
			}
		})
	}
}

// outcome is the result of an undisturbed repair.
type outcome struct {
	writes   []Write
	after    map[string]string // the state right after it
	healed   map[string]string // the state after all other repairs, too
	findings map[string]state.Severity
}

// crashes runs a repair without a crash to learn its result, and then with a crash at all
// or some of the writes.
func (x *damaged) crashes(t *testing.T, request repair.Request, r *rand.Rand, did map[repair.Kind]bool) {
	plan := x.plan(t, request)
	if len(plan.Steps) == 0 {
		t.Fatalf("there is nothing to repair; refused: %+v", plan.Refused)
	}
	before := len(x.proxy.Writes())
	res, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), "journal"), apply.Options{})
	must(t, err)
	for _, o := range res.Outcomes {
		if o.Open() {
			t.Errorf("without a crash, %s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
		did[o.Step.Kind] = did[o.Step.Kind] || o.Status == repair.Done
	}
	x.unharmed(t)
	want := &outcome{writes: x.proxy.Writes()[before:], after: x.essence(t), findings: map[string]state.Severity{}}
	for _, f := range audit.Run(x.state(t), checks.All).Findings {
		want.findings[f.Fingerprint] = f.Severity
	}
	x.again(t, with(request))
	want.healed = x.essence(t)
	t.Logf("%d steps, %d writes", len(plan.Steps), len(want.writes))
	for _, p := range points(len(want.writes), r) {
		t.Run(p.String(), func(t *testing.T) { x.crash(t, request, p, want) })
	}
}

// with requests all repairs in addition to a request. An interrupted release leaves an
// affinity without a block, or an object marked deleted, and other repairs complete
// these.
func with(request repair.Request) repair.Request {
	all := everything
	all.StrictAffinity = request.StrictAffinity
	return all
}

// points returns all points of n writes, or a sample of them.
func points(n int, r *rand.Rand) []crashPoint {
	var all []crashPoint
	for k := range n {
		for i := range 4 {
			all = append(all, crashPoint{k: k + 1, after: i&1 != 0, resume: i&2 != 0})
		}
	}
	if testenv.EveryCase() {
		return all
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 1+n/20)]
}

func (x *damaged) crash(t *testing.T, request repair.Request, p crashPoint, want *outcome) {
	write := want.writes[p.k-1]
	plan := x.plan(t, request)
	before := x.state(t)
	path := filepath.Join(t.TempDir(), "journal")
	died := x.tool.killed(t.Context(), x.proxy, p.k, p.after, plan, path)
	if !died {
		t.Fatalf("it ended before it came to write %d (%s)", p.k, write)
	}
	x.unharmed(t)
	file, err := journal.Read(path)
	must(t, err)
	broke := brokeOff(file)
	for _, w := range Worse(before, x.state(t), broke, want.findings) {
		t.Errorf("after it died in a %s step, at %s, worse than before: %s", broke, write, w)
	}
	if p.resume {
		res, err := x.tool.resume(t.Context(), path, apply.Options{})
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
