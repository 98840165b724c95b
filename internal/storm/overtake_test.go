package storm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// Calls of Calico's client that use objects read before a repair.

// calls are calls of Calico's client on the blocks and affinities of the damage.
var calls = []struct {
	name string
	do   func(d *disturbance)
}{
	{"a claim of a block that only an affinity is left of", func(d *disturbance) { d.claimLeft("n3") }},
	{"a claim of it by another node", func(d *disturbance) { d.claimLeft("n1") }},
	{"the next pod of a node with affinities to nothing", func(d *disturbance) { d.pod("n2", false) }},
	{"the next pod of a node with an empty block", func(d *disturbance) { d.pod("n1", false) }},
	{"the next pod of a node whose affinity is missing", func(d *disturbance) { d.pod("n4", false) }},
	{"a release of all that a node has empty", func(d *disturbance) {
		_ = d.client.IPAM.ReleaseHostAffinities(d.ctx, host("n1"), true)
	}},
	{"a release of what a vanished node has", func(d *disturbance) {
		_ = d.client.IPAM.ReleaseHostAffinities(d.ctx, host("orphan"), true)
	}},
	{"a release of leaked addresses", func(d *disturbance) {
		_ = d.client.releaseHandle(d.ctx, seeding.Handle("default", "leak-2"))
	}},
}

// claimLeft makes a node claim the deleted block whose confirmed affinity for n3 remains.
// For n3, Calico uses that affinity without writing it.
func (d *disturbance) claimLeft(node string) {
	_, _, _ = d.client.IPAM.ClaimAffinity(d.ctx, calicoNet(d.fixture.left), host(node))
}

// TestRepairActsBetweenCalicosWrites pauses Calico's client before one of its writes
// while a whole repair runs. Then the client continues with the objects that it had read
// before.
func TestRepairActsBetweenCalicosWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	x := newDamaged(t, testcluster.CRDv1)
	request := requests()["all"]
	request.StrictAffinity = nil
	for _, call := range testenv.Sample(t, 1, calls) {
		for k := 1; ; k++ {
			if !testenv.EveryCase() {
				k += r.IntN(6)
			}
			more := false
			t.Run(fmt.Sprintf("%s/before-write-%d", strings.ReplaceAll(call.name, " ", "-"), k), func(t *testing.T) {
				more = x.overtaken(t, request, k, call.do)
			})
			if !more || t.Failed() {
				break
			}
		}
	}
}

// overtaken reports whether the call made a k-th write.
func (x *damaged) overtaken(t *testing.T, request repair.Request, k int, call func(*disturbance)) bool {
	plan := x.plan(t, request)
	client := NewClient(t, x.Cluster, "calico")
	seeder, err := seeding.New(x.Cluster)
	must(t, err)
	seeder.Calico = client.Calico
	d := &disturbance{damaged: x, ctx: t.Context(), seeder: seeder, client: client, live: maps.Clone(x.fixture.Live)}
	came := false
	client.FaultProxy.Pause(func(n int, w Write) bool {
		if n == k {
			came = true
			res, err := x.tool.apply(d.ctx, plan, filepath.Join(t.TempDir(), "journal"), apply.Options{})
			if err != nil {
				t.Errorf("repairing before %s: %v", w, err)
				return true
			}
			t.Logf("repaired before %s", w)
			for _, o := range res.Outcomes {
				if o.Open() {
					t.Logf("%s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
				}
				if o.Status == repair.Failed {
					t.Errorf("%s failed: %s", o.Step.ID, o.Reason)
				}
			}
		}
		return true
	})
	call(d)
	x.leaves(t, request, d)
	return came
}
