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
	addrs, err := d.seeder.Pod(d.ctx, p)
	if err != nil {
		return
	}
	for _, a := range addrs {
		d.live[a] = seeding.Handle("default", p.Name)
	}
}

// TestClusterActsBetweenWrites disturbs each write of a repair with an operation on the
// same objects. Afterwards no address in use may be harmed, and remaining contradictions
// must be mended by the next repair.
func TestClusterActsBetweenWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	x := newDamaged(t, testcluster.CRDv1)
	request := requests()["all"]
	plan := x.plan(t, request)
	before := len(x.proxy.Writes())
	_, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), "journal"), apply.Options{})
	must(t, err)
	writes := x.proxy.Writes()[before:]
	for k := range writes {
		for _, i := range x.chosen(writes, k, r) {
			name := fmt.Sprintf("write-%d-%s", k+1, strings.ReplaceAll(disturbances[i].name, " ", "-"))
			t.Run(name, func(t *testing.T) { x.disturbed(t, request, k+1, disturbances[i].do) })
		}
	}
}

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

func (x *damaged) disturbed(t *testing.T, request repair.Request, k int, disturb func(*disturbance)) {
	plan := x.plan(t, request)
	seeder, err := seeding.New(x.Cluster)
	must(t, err)
	d := &disturbance{damaged: x, ctx: t.Context(), seeder: seeder, client: x.fixture.client, live: maps.Clone(x.fixture.Live)}
	path := filepath.Join(t.TempDir(), "journal")
	base := len(x.proxy.Writes())
	held := ""
	x.proxy.Pause(func(n int, w Write) bool {
		if n == base+k {
			held = w.String()
			d.about(path)
			disturb(d)
		}
		return true
	})
	res, err := x.tool.apply(t.Context(), plan, path, apply.Options{})
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
	x.leaves(t, request, d)
}

// about determines the objects of the current step.
func (d *disturbance) about(path string) {
	d.node = "n1"
	file, err := journal.Read(path)
	if err != nil {
		return
	}
	for i := range file.Plan.Steps {
		s := &file.Plan.Steps[i]
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
