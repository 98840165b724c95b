package storm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// disturbances are operations of Calico's own client on the objects of a step while one
// of its writes is in progress.
var disturbances = []struct {
	name string
	do   func(d *disturbance)
}{
	{"its node claims the block", func(d *disturbance) { d.claim(d.node) }},
	{"another node claims the block", func(d *disturbance) { d.claim(d.other()) }},
	{"a pod of its node gets an address of the block", func(d *disturbance) { d.pod(d.node, true) }},
	{"a pod of another node gets an address of the block", func(d *disturbance) { d.pod(d.other(), true) }},
	{"its node's next pod", func(d *disturbance) { d.pod(d.node, false) }},
	{"its node releases what is empty", func(d *disturbance) {
		_ = d.client.IPAM.ReleaseHostAffinities(d.ctx, host(d.node), true)
	}},
	{"kube-controllers releases the block", func(d *disturbance) {
		if d.cidr.IsValid() {
			_ = d.client.IPAM.ReleaseAffinity(d.ctx, calicoNet(d.cidr), d.node, true)
		}
	}},
	{"its node registers again, and its pod comes", func(d *disturbance) {
		_ = d.seeder.Node(d.ctx, seeding.Node{Name: "orphan"})
		d.pod("orphan", true)
	}},
}

type disturbance struct {
	*damaged
	ctx    context.Context
	seeder *seeding.Seeder
	client *Client
	live   map[netip.Addr]string
	node   string
	cidr   netip.Prefix
	id     string
	// waiting are the pods without an address; the kubelet tries again.
	waiting []seeding.Pod
}

func (d *disturbance) other() string {
	if d.node == "n1" {
		return "n2"
	}
	return "n1"
}

func (d *disturbance) claim(node string) {
	if d.cidr.IsValid() && d.exists(node) {
		_, _, _ = d.client.IPAM.ClaimAffinity(d.ctx, calicoNet(d.cidr), host(node))
	}
}

func (d *disturbance) exists(node string) bool {
	_, err := d.Get(d.ctx, testcluster.Core[1], "", node)
	return err == nil
}

// pod starts a pod, if fixed is set with the last address of the block. The pod may get
// no address.
func (d *disturbance) pod(node string, fixed bool) {
	if !d.exists(node) {
		return
	}
	p := seeding.Pod{Namespace: "default", Name: "late-" + node, Node: node}
	if fixed {
		if !d.cidr.IsValid() {
			return
		}
		addr := d.cidr.Addr()
		for range 7 {
			addr = addr.Next()
		}
		p.Annotations = map[string]string{"cni.projectcalico.org/ipAddrs": fmt.Sprintf("[%q]", addr)}
	}
	d.start(p)
}

func (d *disturbance) start(p seeding.Pod) {
	addrs, err := d.seeder.Pod(d.ctx, p)
	if err != nil {
		d.waiting = append(d.waiting, p)
	}
	for _, a := range addrs {
		d.live[a] = seeding.Handle("default", p.Name)
	}
}

// retry starts the waiting pods again, each as a new object.
func (d *disturbance) retry(t *testing.T) {
	t.Helper()
	waiting := d.waiting
	d.waiting = nil
	for _, p := range waiting {
		must(t, d.Kube.CoreV1().Pods(p.Namespace).Delete(d.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		d.start(p)
	}
	for _, p := range d.waiting {
		t.Errorf("pod %s on %s gets no address", p.Name, p.Node)
	}
}

// TestClusterActsBetweenWrites disturbs each write of a repair, of its undo, and of its continuation
// after a kill with an operation on the same objects. Afterwards no address in use may be harmed,
// and remaining contradictions must be mended by the next repair.
func TestClusterActsBetweenWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	x := newDamaged(t, testcluster.CRDv1)
	request := requests()["all"]
	applies := func(t *testing.T, plan *repair.Plan, path string) (*repair.Result, error) {
		return x.tool.apply(t.Context(), plan, path, apply.Options{})
	}
	for _, run := range []struct {
		name   string
		before func(*testing.T, *repair.Plan, string)
		writes writing
	}{
		{"apply", func(*testing.T, *repair.Plan, string) {}, applies},
		{"undo", func(t *testing.T, plan *repair.Plan, path string) {
			_, err := applies(t, plan, path)
			must(t, err)
		}, func(t *testing.T, _ *repair.Plan, path string) (*repair.Result, error) {
			return x.tool.undo(t.Context(), path)
		}},
		{"resume", func(t *testing.T, plan *repair.Plan, path string) {
			x.tool.killed(t.Context(), x.proxy, 4, true, plan, path)
		}, func(t *testing.T, _ *repair.Plan, path string) (*repair.Result, error) {
			return x.tool.resume(t.Context(), path, apply.Options{})
		}},
	} {
		began := func(t *testing.T) (*repair.Plan, string) {
			plan, path := x.plan(t, request), filepath.Join(t.TempDir(), "journal")
			run.before(t, plan, path)
			return plan, path
		}
		plan, path := began(t)
		before := len(x.proxy.Writes())
		_, err := run.writes(t, plan, path)
		must(t, err)
		writes := x.proxy.Writes()[before:]
		x.chose = nil
		for k := range writes {
			for _, i := range x.chosen(writes, k, r) {
				name := fmt.Sprintf("%s-write-%d-%s", run.name, k+1, strings.ReplaceAll(disturbances[i].name, " ", "-"))
				t.Run(name, func(t *testing.T) {
					plan, path := began(t)
					x.leaves(t, request, x.disturbed(t, plan, path, run.writes, k+1, disturbances[i].do))
				})
			}
		}
	}
}

// writing applies a plan with a journal, or undoes or continues it.
type writing func(t *testing.T, plan *repair.Plan, path string) (*repair.Result, error)

// chosen returns the disturbances to try at a write: all of them, or one at one write of
// half of the verbs and resources. Half of the choices are the two disturbances that have caused
// most harm in practice.
func (x *damaged) chosen(writes []Write, k int, r *rand.Rand) []int {
	if testenv.EveryCase() {
		all := make([]int, len(disturbances))
		for i := range all {
			all[i] = i
		}
		return all
	}
	var alike []int
	for i, w := range writes {
		if w.Sort() == writes[k].Sort() {
			alike = append(alike, i)
		}
	}
	if x.chose == nil {
		x.chose = map[string]int{}
	}
	sort := writes[k].Sort()
	if _, done := x.chose[sort]; !done {
		x.chose[sort] = alike[r.IntN(len(alike))]
		if r.IntN(2) == 0 {
			x.chose[sort] = -1
		}
	}
	if x.chose[sort] != k {
		return nil
	}
	if r.IntN(2) == 0 {
		return []int{2 * r.IntN(2)}
	}
	return []int{r.IntN(len(disturbances))}
}

// disturbed disturbs the k-th write of a run.
func (x *damaged) disturbed(t *testing.T, plan *repair.Plan, path string, run writing, k int, disturb func(*disturbance)) *disturbance {
	t.Helper()
	seeder, err := seeding.New(x.Cluster)
	must(t, err)
	d := &disturbance{damaged: x, ctx: t.Context(), seeder: seeder, client: x.fixture.client, live: maps.Clone(x.fixture.Live)}
	base := len(x.proxy.Writes())
	held := ""
	x.proxy.Pause(func(n int, w Write) bool {
		if n == base+k {
			held = w.String()
			d.about(plan, path)
			disturb(d)
		}
		return true
	})
	res, err := run(t, plan, path)
	x.proxy.Pause(nil)
	must(t, err)
	t.Logf("at %s of step %s", held, d.id)
	for _, o := range res.Outcomes {
		if o.Open() {
			t.Logf("%s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
		if o.Status == repair.Failed {
			t.Errorf("%s failed: %s", o.Step.ID, o.Reason)
		}
	}
	return d
}

// about determines the objects of the current step of a run or of its undo.
func (d *disturbance) about(plan *repair.Plan, path string) {
	d.node = "n1"
	file, err := journal.Read(path + ".undo")
	if err != nil {
		file, err = journal.Read(path)
	}
	if err != nil {
		return
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		if !file.Started(s.ID) {
			continue
		}
		d.id = s.ID
		if s.Target.Node != "" {
			d.node = s.Target.Node
		} else if len(s.Nodes) > 0 {
			d.node = s.Nodes[0]
		}
		if cidr, err := netip.ParsePrefix(s.Target.CIDR); err == nil {
			d.cidr = cidr
		} else if addr, err := netip.ParseAddr(s.Target.IP); err == nil {
			d.cidr = netip.PrefixFrom(addr, addr.BitLen()-3).Masked()
		}
	}
}

// leaves fails the test if an address in use was harmed, or if the next repair leaves
// contradictions.
func (x *damaged) leaves(t *testing.T, request repair.Request, d *disturbance) {
	t.Helper()
	wrong, err := Harm(t.Context(), x.Cluster, x.group, d.live)
	must(t, err)
	d.retry(t)
	x.again(t, request)
	later, err := Harm(t.Context(), x.Cluster, x.group, d.live)
	must(t, err)
	for _, w := range append(wrong, later...) {
		t.Errorf("HARM: %s", w)
	}
	for _, f := range findings(x.state(t), d.borrowed) {
		t.Errorf("left after another repair: %s", f)
	}
}

// borrowed reports whether a finding is about a block of a deleted node, while a new pod
// uses an address of the block. Then only the pod can end the finding.
func (d *disturbance) borrowed(f audit.Finding) bool {
	if f.Check != "block/dead-node" && f.Check != "affinity/dead-node" {
		return false
	}
	block, err := netip.ParsePrefix(f.Subject.CIDR)
	for a := range d.live {
		if _, before := d.fixture.Live[a]; err == nil && !before && block.Contains(a) {
			return true
		}
	}
	return false
}
