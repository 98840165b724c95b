package apply_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// lawRequest is a request whose plans move no pods.
type lawRequest struct {
	name string
	repair.Request
}

func lawRequests() []lawRequest {
	on := true
	all := everything
	all.WithoutHostEvidence = true
	strict := all
	strict.StrictAffinity = &on
	return []lawRequest{
		{"everything", all}, {"everything, and strict affinity", strict}, {"empty blocks", repair.Request{EmptyBlocks: true}},
		{"affinities", repair.Request{OrphanAffinities: true, MissingAffinities: true, SoftDeleted: true, DeadNodes: true}},
	}
}

// TestLawOnCluster applies plans to a cluster. Before and after, it asks Calico's own client what
// the next pod of each node gets once others have claimed blocks: it must not get less. The
// planner's test of the same law asks the Allocator, for many more states.
func TestLawOnCluster(t *testing.T) {
	l := newLab(t)
	var cases []lawCase
	texts, err := statedsl.Cases("../planner/testdata/law.txt")
	l.must(err)
	for i := range 60 {
		texts[fmt.Sprintf("tight %02d", i)] = statedsl.Tight(rand.New(rand.NewPCG(26, uint64(i))))
	}
	release := regexp.MustCompile("(?m)^version .*$") // the client's version
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := release.ReplaceAllString(texts[name], "version v3.31.0")
		snapshot, err := statedsl.Parse(text)
		l.must(err)
		st := state.New(snapshot, state.Options{Grace: grace})
		for _, r := range lawRequests() {
			if len(planner.Build(st, r.Request).Steps) == 0 {
				continue
			}
			cases = append(cases, lawCase{name + ", " + r.name, text, r.Request})
		}
	}
	steps, lacked := 0, 0
	for _, c := range testenv.Sample(t, 3, cases) {
		t.Run(c.name, func(t *testing.T) {
			l := *l
			l.t = t
			done, few := l.checkLaw(c)
			steps, lacked = steps+done, lacked+few
		})
	}
	t.Logf("%d steps were done, and %d seats had no promise before", steps, lacked)
	if steps < 300 && testenv.EveryCase() && !t.Failed() {
		t.Error("too few steps were done to prove anything")
	}
}

type lawCase struct {
	name, text string
	request    repair.Request
}

// checkLaw checks the law for one plan. It returns how many steps were done, and how many seats had
// no promise before.
func (l *lab) checkLaw(c lawCase) (done, lacked int) {
	l.t.Helper()
	ctx := l.t.Context()
	l.store(c.text)
	if len(l.planOf(c.request).Steps) == 0 {
		return 0, 0
	}
	all, err := l.s.Seats(ctx)
	l.must(err)
	seats, orders := all, 6
	rnd := testenv.Rand(l.t)
	if !testenv.EveryCase() {
		orders = 2
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		seats = all[:min(4, len(all))]
	}
	seed := rnd.Uint64()
	promises := func() map[seeding.Seat]seeding.Promise {
		out, err := l.s.Promises(ctx, seats, all, orders, rand.New(rand.NewPCG(seed, 1)))
		l.must(err)
		return out
	}
	before := promises()
	plan := l.planOf(c.request) // of the versions that promises left
	isDue(plan)
	r := l.apply(ctx, plan, apply.Options{Wait: true})
	after := promises()
	exempt := map[string]bool{}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Status == repair.Done {
			done++
		}
		if o.Step.Guard(repair.GuardHolder) != "" {
			exempt[repair.HostOf(o.Step.Guard(repair.GuardOwner))] = true
		}
	}
	for _, seat := range seats {
		was, is := before[seat], after[seat]
		if was == (seeding.Promise{}) {
			lacked++
		}
		borrows := plan.Strict != nil && plan.Strict.To && slices.Contains(slices.Concat(plan.Strict.Starve, plan.Strict.MayStarve), seat.Node)
		if (was.Own && !is.Own || was.Any && !is.Any && !borrows) && !exempt[seat.Node] {
			l.t.Errorf("the next pod of %+v had %+v, and has %+v after\n %s\nin the state\n%s", seat, was, is, strings.Join(became(r), "\n "), c.text)
		}
	}
	return done, lacked
}

// store replaces the cluster's objects with those of a state, bypassing the API server's
// validation.
func (l *lab) store(text string) {
	l.t.Helper()
	ctx := l.t.Context()
	l.must(l.c.Reset(ctx))
	s, err := statedsl.Parse(text)
	l.must(err)
	kinds := map[string]testcluster.Resource{}
	for _, r := range slices.Concat(testcluster.Core, testcluster.CRDv1.Resources()) {
		kinds[r.Kind] = r
	}
	core := map[string]func() runtime.Object{
		"Node": func() runtime.Object { return &corev1.Node{} }, "Pod": func() runtime.Object { return &corev1.Pod{} }, "Namespace": func() runtime.Object { return &corev1.Namespace{} },
	}
	for _, object := range statedsl.Manifest(s) {
		object["metadata"].(map[string]any)["uid"] = string(uuid.NewUUID())
		raw, err := json.Marshal(object)
		l.must(err)
		kind := object["kind"].(string)
		if typed := core[kind]; typed != nil {
			o := typed()
			l.must(json.Unmarshal(raw, o))
			l.must(l.c.Store(ctx, kinds[kind], o))
			continue
		}
		u := &unstructured.Unstructured{}
		l.must(u.UnmarshalJSON(raw))
		if kind == "BlockAffinity" && len(u.GetLabels()) > 0 {
			a := &libapiv3.BlockAffinity{}
			l.must(json.Unmarshal(raw, a))
			model.EnsureBlockAffinityLabels(a)
			u.SetLabels(maps.Clone(a.Labels))
		}
		l.must(l.c.Store(ctx, kinds[kind], u))
	}
}
