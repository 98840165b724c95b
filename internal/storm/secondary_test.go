package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// secondaryRepairs requests the repairs of secondary networks.
var secondaryRepairs = repair.Request{WhereaboutsStranded: true, WhereaboutsReservations: true}

// secondaryCluster returns a cluster with a secondary network and three nodes.
func secondaryCluster(t *testing.T) (*testcluster.Cluster, *seeding.Seeder) {
	t.Helper()
	c := testcluster.Start(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.Whereabouts, testcluster.Attachments}})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(t.Context()))
	for _, n := range []string{"n1", "n2", "n3"} {
		must(t, s.Node(t.Context(), seeding.Node{Name: n}))
	}
	create(t, c, testcluster.Attachments.Resource("network-attachment-definitions"), "default", "fast", map[string]any{
		"config": `{"type":"macvlan","ipam":{"type":"whereabouts","range":"` + secondaryRange + `"}}`,
	})
	create(t, c, secondaryPools, secondaryNamespace, secondaryPool, map[string]any{"range": secondaryRange, "allocations": map[string]any{}})
	return c, s
}

func create(t *testing.T, c *testcluster.Cluster, r testcluster.Resource, namespace, name string, spec map[string]any) {
	t.Helper()
	must(t, c.Create(t.Context(), r, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec}))
}

// TestStormSecondary starts and ends pods on a secondary network in all ways, kills the
// API server, and applies repairs. It kills some repairs at a write and continues them.
// At no etcd revision may an address in use be free or another pod's. One more run may
// leave only problems that Whereabouts' own order of writes causes for running pods.
// After all pods have ended, it must leave none.
func TestStormSecondary(t *testing.T) {
	t.Parallel()
	s := testenv.Seed(t)
	klog.SetLogger(logr.Discard()) // do not log each election
	c, _ := secondaryCluster(t)
	follow, stop := context.WithCancel(t.Context())
	defer stop()
	history, err := Follow(follow, c)
	must(t, err)
	x := newSecondaryStorm(t, c, history, s)
	begun, long := time.Now(), time.Duration(0) // until enough has happened
	if os.Getenv(EnvStorm) != "" {
		long = length(t)
	}
	ctx, halt := context.WithTimeout(t.Context(), long+maxLonger)
	defer halt()
	var all sync.WaitGroup
	for i := range plugins - 1 {
		p := x.plugin(i)
		all.Go(func() { p.work(ctx) })
	}
	all.Go(func() { x.killAPIServer(ctx, rand.New(rand.NewPCG(s, 100))) })
	all.Go(func() { x.repair(ctx, rand.New(rand.NewPCG(s, 200))) })
	all.Go(func() { x.keepChecking(ctx, halt) })
	for pause(ctx, long); x.lacks() != "" && ctx.Err() == nil; {
		pause(ctx, 100*time.Millisecond)
	}
	halt()
	all.Wait()
	t.Logf("%d addresses given in %s; %s", len(x.users.all), time.Since(begun).Round(time.Second), &x.made)
	if none := x.lacks(); none != "" && !x.foul.Load() {
		t.Errorf("it did not happen often enough: %s", none)
	}

	x.healAll(t)
	x.lay(t)
	done := map[string]int{}
	for _, step := range laid {
		done[step] = x.made.get(step)
	}
	x.healAll(t)
	for _, step := range laid {
		if x.made.get(step) == done[step] {
			t.Errorf("what was laid after the storm led to no %q", step)
		}
	}
	for i := range plugins {
		p := x.plugin(i)
		for _, u := range x.users.all {
			if pod := strings.TrimPrefix(u.pod, "default/"); u.to == 0 && (pod == p.name || strings.HasPrefix(pod, p.name+"-")) {
				(&sandbox{p, pod, u.sandbox}).stop(t.Context(), u, ends[p.r.IntN(len(ends))])
			}
		}
	}
	x.healAll(t)
	for _, r := range []testcluster.Resource{secondaryPools, secondaryReservations} {
		objects, err := c.List(t.Context(), r)
		must(t, err)
		for _, o := range objects {
			spec := o.Object["spec"].(map[string]any)
			if entries, pool := spec["allocations"].(map[string]any); !pool || len(entries) > 0 {
				t.Errorf("all pods have ended, and %s %s is left: %v", r.Resource, o.GetName(), spec)
			}
		}
	}
}

// plugins is the number of plugins: one for each worker, and the last one for [secondaryStorm.lay].
const plugins = 9

// laid are the steps that repair what [secondaryStorm.lay] leaves.
var laid = []string{"restore-whereabouts: done", "delete-whereabouts-reservation: done", "release-whereabouts: done"}

// lay leaves one case for each kind of step, since the storm may leave none: a running pod
// that the pool does not record, and records of pods that ended. Another pod is in order.
func (x *secondaryStorm) lay(t *testing.T) {
	t.Helper()
	start := func(n int, lose bool) (*sandbox, *secondaryUse) {
		p := x.plugin(plugins - 1)
		s := &sandbox{p, fmt.Sprintf("%s-%d", p.name, n), fmt.Sprintf("%s-%d", p.name, n)}
		u := s.start(t.Context(), lose)
		if u == nil {
			t.Fatalf("with no one else about, %s got no address", s.pod)
		}
		return s, u
	}
	start(0, false)
	start(1, true)
	for n, how := range []end{halfDEL, withoutDEL} {
		s, u := start(2+n, false)
		s.stop(t.Context(), u, how)
	}
}

// secondaryStorm is a storm on a secondary network.
type secondaryStorm struct {
	c        *testcluster.Cluster
	users    *addressUsers
	seed     uint64
	made     tally
	troubles troubles
	dir      string
	// seeing uses host views; blind does not.
	seeing, blind *tool
	proxy         *FaultProxy
	// broken is the journal of a killed run that has not been continued yet.
	broken      string
	brokenBlind bool
	runs        int
	foul        atomic.Bool // a violation ended the storm
}

func newSecondaryStorm(t *testing.T, c *testcluster.Cluster, history *EtcdHistory, s uint64) *secondaryStorm {
	t.Helper()
	x := &secondaryStorm{
		c: c, seed: s, dir: t.TempDir(), proxy: NewFaultProxy(t, c.Config, "calico-audit"),
		users: &addressUsers{history: history, open: map[netip.Addr]*secondaryUse{}, left: map[netip.Addr]string{}},
	}
	x.proxy.Lag(lag(s, 300))
	var err error
	x.seeing, err = newTool(x.proxy.Config(), x.users.machines)
	must(t, err)
	reader, err := cluster.NewKubernetes(x.proxy.Config(), cluster.KubernetesOptions{})
	must(t, err)
	x.blind = &tool{config: x.proxy.Config(), reader: reader}
	return x
}

func (x *secondaryStorm) plugin(i int) *secondaryPlugin {
	name := []string{"db", "web"}[i%2]
	return &secondaryPlugin{
		c: x.c, addressUsers: x.users, r: rand.New(rand.NewPCG(x.seed, uint64(i))), name: fmt.Sprintf("%s%d", name, i), stable: name == "db",
		node: fmt.Sprintf("n%d", i%3+1), made: &x.made, troubles: &x.troubles,
	}
}

// lacks names an event that must happen for the storm to prove anything, but did not.
func (x *secondaryStorm) lacks() string {
	for did, often := range map[string]int{
		"ADD": 20, "DEL": 3, "no DEL": 3, "half a DEL": 1, "ADD without the pool": 2, "runs on without its object": 1,
		"API server killed": 2, "repair killed": 2, "resumed": 1, "told not to ask machines, a starting pod's address kept": 2,
		"release-whereabouts: done": 5,
	} {
		if os.Getenv(EnvStorm) == "" {
			often = 1 // the long storm of make soak waits for more
		}
		if has := x.made.get(did); has < often {
			return fmt.Sprintf("%s: %d of %d", did, has, often)
		}
	}
	return ""
}

func (x *secondaryStorm) killAPIServer(ctx context.Context, r *rand.Rand) {
	for {
		if pause(ctx, time.Duration(3+r.IntN(5))*time.Second); ctx.Err() != nil {
			return
		}
		x.c.StopAPIServer()
		pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
		if err := x.c.StartAPIServer(context.WithoutCancel(ctx)); err != nil {
			x.troubles.add(err)
			return
		}
		x.made.add("API server killed")
		_ = x.c.Heartbeat(ctx)
	}
}

// keepChecking ends the storm after a violation.
func (x *secondaryStorm) keepChecking(ctx context.Context, halt func()) {
	for ctx.Err() == nil {
		pause(ctx, 2*time.Second)
		if wrong, err := x.users.check(context.WithoutCancel(ctx)); err != nil || len(wrong) > 0 {
			x.troubles.add(err)
			x.foul.Store(true)
			halt()
		}
	}
}

// repair runs repairs with a short grace period until the context ends. Two in five are killed at
// one of their writes, and the next run continues them. Every other run has no host views, so that
// only records and pods decide; during it no container runs without its pod object.
func (x *secondaryStorm) repair(ctx context.Context, r *rand.Rand) {
	for ; ctx.Err() == nil; x.runs++ {
		pause(ctx, 200*time.Millisecond)
		blind := x.runs%2 == 0
		if x.broken != "" {
			blind = x.brokenBlind
		}
		if blind && !x.users.blind.TryLock() {
			continue
		}
		x.repairOnce(ctx, blind, r)
		if blind {
			x.users.blind.Unlock()
		}
	}
}

func (x *secondaryStorm) repairOnce(ctx context.Context, blind bool, r *rand.Rand) {
	tool, request := x.seeing, secondaryRepairs
	if blind {
		tool, request.WithoutHostEvidence = x.blind, true
	}
	if x.broken != "" {
		if res, err := tool.resume(ctx, x.broken, apply.Options{Wait: true}); err == nil {
			x.broken = ""
			x.made.add("resumed")
			x.count(res)
		}
		return
	}
	plan, err := tool.plan(ctx, request, secondaryGrace)
	if err != nil {
		x.made.add("not read")
		return
	}
	for _, f := range plan.Refused {
		x.made.add("refused " + string(f.Code))
		if blind && f.Kind == repair.ReleaseWhereabouts && f.Code == repair.RefusedInUse && strings.Contains(f.Reason, "starting") {
			x.made.add("told not to ask machines, a starting pod's address kept")
		}
	}
	if len(plan.Steps) == 0 {
		return
	}
	path := filepath.Join(x.dir, fmt.Sprint(x.runs))
	if r.IntN(5) < 2 {
		if tool.killed(ctx, x.proxy, 1+r.IntN(len(plan.Steps)), r.IntN(2) == 0, plan, path) {
			x.made.add("repair killed")
			x.broken, x.brokenBlind = path, blind
			x.troubles.add(x.leftBy(path))
		}
		return
	}
	res, err := tool.apply(ctx, plan, path, apply.Options{Wait: true})
	if err != nil {
		x.made.add("not begun")
		return
	}
	x.count(res)
}

// secondaryGrace is the grace period of the storm's repairs.
const secondaryGrace = 500 * time.Millisecond

// leftBy records the reservations that a killed run may have left without their entries.
func (x *secondaryStorm) leftBy(path string) error {
	file, err := journal.Read(path)
	if err != nil {
		return err
	}
	for i := range file.Plan.Steps {
		if s := &file.Plan.Steps[i]; s.Kind == repair.ReleaseWhereabouts && file.Started(s.ID) {
			x.users.leave(netip.MustParseAddr(s.Target.IP), s.Guard(repair.GuardPod))
		}
	}
	return nil
}

func (x *secondaryStorm) count(r *repair.Result) {
	for _, o := range r.Outcomes {
		x.made.add(fmt.Sprintf("%s: %s", o.Step.Kind, o.Status))
	}
}

// healAll repairs without disturbances and fails the test for remaining problems. One run
// must suffice.
func (x *secondaryStorm) healAll(t *testing.T) {
	t.Helper()
	must(t, x.c.Heartbeat(t.Context()))
	if x.broken != "" {
		tool := x.seeing
		if x.brokenBlind {
			tool = x.blind
		}
		res, err := tool.resume(t.Context(), x.broken, apply.Options{Wait: true})
		must(t, err)
		x.broken = ""
		x.count(res)
	}
	time.Sleep(2*time.Second + secondaryGrace) // times are written in whole seconds
	x.runs++
	plan, err := x.seeing.plan(t.Context(), secondaryRepairs, secondaryGrace)
	must(t, err)
	res, err := x.seeing.apply(t.Context(), plan, filepath.Join(x.dir, fmt.Sprint(x.runs)), apply.Options{Wait: true})
	must(t, err)
	x.count(res)
	for _, o := range res.Outcomes {
		if o.Open() {
			t.Errorf("with no one else about, %s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
	}
	wrong, err := x.users.check(t.Context())
	must(t, errors.Join(err, x.troubles.take()))
	for _, w := range wrong {
		t.Errorf("FOUL: %s", w)
	}
	st, err := x.seeing.read(t.Context(), secondaryGrace)
	must(t, err)
	for _, f := range audit.Run(st, checks.All).Findings {
		if strings.HasPrefix(f.Check, "whereabouts/") && !x.explained(f) {
			t.Errorf("left: %s %s: %s", f.Check, f.Subject.ID(), f.Message)
		}
	}
}

// explained reports whether a finding about a running pod was caused by Whereabouts
// itself or by a killed run. A reservation names no sandbox, so an earlier pod's
// reservation cannot be distinguished from that of a running pod with the same name, and
// is kept. An entry may lack a reservation: Whereabouts creates none after it has found
// the pod's own, but that may be deleted before the entry is written, or may be for
// another address than the assigned one.
func (x *secondaryStorm) explained(f audit.Finding) bool {
	value := func(name string) string {
		i := slices.IndexFunc(f.Evidence, func(e state.Evidence) bool { return e.Name == name })
		if i < 0 {
			return ""
		}
		return f.Evidence[i].Value
	}
	x.users.history.mu.Lock()
	defer x.users.history.mu.Unlock()
	x.users.mu.Lock()
	defer x.users.mu.Unlock()
	switch f.Check {
	case "whereabouts/reservation-only":
		a, err := netip.ParseAddr(value("address"))
		runs := false
		for _, u := range x.users.open {
			runs = runs || u.pod == value("pod")
		}
		return err == nil && f.Severity == state.Warning && runs && x.users.left[a] == value("pod")
	case "whereabouts/allocation-only":
		a, err := netip.ParseAddr(f.Subject.IP)
		u := x.users.open[a]
		return err == nil && u != nil && ownerAt(x.users.history.secondary.reservations[a], u.from).pod == ""
	}
	return false
}
