package storm

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// Traps from practice that require the behaviour of Calico's own client. The client
// creates each of them, and it is repaired as the program does.

// trap is a cluster with a pool, blocks of eight addresses and two nodes, n1 and n2, each
// with a pod.
type trap struct {
	*testcluster.Cluster
	seeder *seeding.Seeder
	client *Client
	tool   *tool
	live   map[netip.Addr]string
	blocks map[string]netip.Prefix // by node
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	x := &trap{Cluster: c, seeder: s, client: NewClient(t, c, "calico"), live: map[netip.Addr]string{}, blocks: map[string]netip.Prefix{}}
	x.tool, err = newTool(c.Config, somewhere(x.live))
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.9.0.0/24", BlockSize: 29}))
	for _, n := range []string{"n1", "n2"} {
		must(t, s.Node(ctx, seeding.Node{Name: n}))
		addr := x.pod(t, "pod-"+n, n)
		x.blocks[n] = netip.PrefixFrom(addr, 29).Masked()
	}
	return x
}

func (x *trap) pod(t *testing.T, name, node string) netip.Addr {
	t.Helper()
	addrs, err := x.seeder.Pod(t.Context(), seeding.Pod{Namespace: "default", Name: name, Node: node})
	must(t, err)
	x.live[addrs[0]] = seeding.Handle("default", name)
	return addrs[0]
}

// free returns an unclaimed block.
func (x *trap) free(t *testing.T) netip.Prefix {
	t.Helper()
	block := netip.MustParsePrefix("10.9.0.0/29")
	for slices.Contains([]netip.Prefix{x.blocks["n1"], x.blocks["n2"]}, block) {
		addr := block.Addr()
		for range 8 {
			addr = addr.Next()
		}
		block = netip.PrefixFrom(addr, 29)
	}
	return block
}

// repair makes all objects an hour old and runs repairs.
func (x *trap) repair(t *testing.T, request repair.Request) *repair.Result {
	t.Helper()
	return x.apply(t, x.plan(t, request))
}

func (x *trap) plan(t *testing.T, request repair.Request) *repair.Plan {
	t.Helper()
	must(t, x.Backdate(t.Context(), time.Hour))
	must(t, x.Heartbeat(t.Context()))
	plan, err := x.tool.plan(t.Context(), request, 0)
	must(t, err)
	return plan
}

func (x *trap) apply(t *testing.T, plan *repair.Plan) *repair.Result {
	t.Helper()
	res, err := x.tool.apply(t.Context(), plan, filepath.Join(t.TempDir(), "journal"), apply.Options{})
	must(t, err)
	wrong, err := Harm(t.Context(), x.Cluster, testcluster.CRDv1, x.live)
	must(t, err)
	for _, w := range wrong {
		t.Errorf("HARM: %s", w)
	}
	return res
}

func (x *trap) audit(t *testing.T) *state.State {
	t.Helper()
	st, err := x.tool.read(t.Context(), 0)
	must(t, err)
	return st
}

// done fails the test unless the result is exactly one step, with this ID, done.
func done(t *testing.T, res *repair.Result, id string) {
	t.Helper()
	if len(res.Outcomes) != 1 || res.Outcomes[0].Step.ID != id || res.Outcomes[0].Status != repair.Done {
		for _, o := range res.Outcomes {
			t.Logf("%s is %s: %s %s", o.Step.ID, o.Status, o.Code, o.Reason)
		}
		t.Fatalf("the outcome is not %s done", id)
	}
}

func (x *trap) affinities(t *testing.T) []string {
	t.Helper()
	list, err := x.List(t.Context(), testcluster.CRDv1.Resource("blockaffinities"))
	must(t, err)
	var names []string
	for i := range list {
		names = append(names, list[i].GetName())
	}
	return names
}

// TestTrapAffinityThatCalicosReleaseLeaves plays an affinity whose block does not exist.
// Calico's own release of a host's affinities ignores it without an error, and its node
// keeps a blackhole route for the block forever.
func TestTrapAffinityThatCalicosReleaseLeaves(t *testing.T) {
	x := newTrap(t)
	ctx, block := t.Context(), x.free(t)
	must(t, x.seeder.ClaimBlocks(ctx, "n1", block))
	x.client.FaultProxy.Die(4, false) // the block is deleted, but not yet the affinity
	_ = x.client.IPAM.ReleaseAffinity(ctx, calicoNet(block), "n1", true)
	x.client.FaultProxy.Reset()

	if err := x.client.IPAM.ReleaseHostAffinities(ctx, host("n1"), true); err == nil {
		t.Log("ReleaseHostAffinities tells of no error")
	}
	left := affinityName("n1", block)
	if !slices.Contains(x.affinities(t), left) {
		t.Fatal("Calico's own release deleted the affinity: this is no trap any more")
	}
	done(t, x.repair(t, repair.Request{OrphanAffinities: true}), "delete-affinity:n1:"+block.String())
	if slices.Contains(x.affinities(t), left) {
		t.Error("the affinity is still there")
	}
	// The block can be claimed again, because no other node has an affinity to it.
	must(t, x.seeder.ClaimBlocks(ctx, "n2", block))
	if got := findings(x.audit(t), nil); len(got) > 0 {
		t.Errorf("after n2 claimed the block: %v", got)
	}
}

// TestTrapTwoAffinitiesForOneBlock plays two nodes with an affinity to one block. The
// affinity of the node that does not own the block is deleted in any state. The owner's
// affinity and its pod are not touched.
func TestTrapTwoAffinitiesForOneBlock(t *testing.T) {
	for _, state := range []string{"confirmed", "pending", "pendingDeletion", ""} {
		t.Run("loser-"+state, func(t *testing.T) {
			x := newTrap(t)
			ctx, block := t.Context(), x.blocks["n1"]
			resource := testcluster.CRDv1.Resource("blockaffinities")
			must(t, x.Create(ctx, resource, map[string]any{
				"metadata": map[string]any{"name": affinityName("n2", block)},
				"spec":     map[string]any{"cidr": block.String(), "node": "n2", "type": "host", "state": state, "deleted": "false"},
			}))
			plan := x.plan(t, repair.Request{OrphanAffinities: true})
			owner, err := x.Get(ctx, resource, "", affinityName("n1", block))
			must(t, err)
			done(t, x.apply(t, plan), "delete-affinity:n2:"+block.String())
			after, err := x.Get(ctx, resource, "", affinityName("n1", block))
			must(t, err)
			if owner.GetResourceVersion() != after.GetResourceVersion() {
				t.Error("the owner's affinity was written")
			}
			if slices.Contains(x.affinities(t), affinityName("n2", block)) {
				t.Error("the loser's affinity is still there")
			}
		})
	}
}

// TestTrapBlockWithoutAffinity deletes the affinity of a block in use. The node would
// claim another block for its next pod, and the block would no longer be routed as a
// whole. With the affinity restored, the node continues to use its block.
func TestTrapBlockWithoutAffinity(t *testing.T) {
	x := newTrap(t)
	ctx, block := t.Context(), x.blocks["n1"]
	must(t, x.Delete(ctx, testcluster.CRDv1.Resource("blockaffinities"), "", affinityName("n1", block)))
	done(t, x.repair(t, repair.Request{MissingAffinities: true}), "restore-affinity:"+block.String())
	if addr := x.pod(t, "next", "n1"); !block.Contains(addr) {
		t.Errorf("the node's next pod has %s, which is not of its block %s", addr, block)
	}
	if got := findings(x.audit(t), nil); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// TestTrapNodeReturnsInMidPlan plays a node that does not exist when the plan is made and
// exists again when it is applied, with a pod in the block.
func TestTrapNodeReturnsInMidPlan(t *testing.T) {
	for name, back := range map[string]func(t *testing.T, x *trap){
		"with a pod":          func(t *testing.T, x *trap) { x.pod(t, "again", "n2") },
		"without a pod":       func(*testing.T, *trap) {},
		"having just claimed": func(t *testing.T, x *trap) { must(t, x.seeder.ClaimBlocks(t.Context(), "n2", x.blocks["n2"])) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrap(t)
			ctx := t.Context()
			must(t, x.seeder.DeletePod(ctx, "default", "pod-n2", true))
			for a := range x.live {
				if x.blocks["n2"].Contains(a) {
					delete(x.live, a)
				}
			}
			must(t, x.seeder.DeleteNode(ctx, "n2"))
			plan := x.plan(t, repair.Request{EmptyBlocks: true})
			if len(plan.Steps) != 1 || plan.Steps[0].ID != "release-block:"+x.blocks["n2"].String() {
				t.Fatalf("the plan is %+v, not the release of the dead node's block", plan.Steps)
			}
			must(t, x.seeder.Node(ctx, seeding.Node{Name: "n2"}))
			back(t, x)
			res := x.apply(t, plan)
			if o := res.Outcomes[0]; o.Status != repair.Skipped {
				t.Errorf("the last block of a node that is back was %s: %s", o.Status, o.Reason)
			}
			if state, err := x.ReadIPAM(ctx, testcluster.CRDv1); err != nil || len(state.Blocks["n2"]) != 1 {
				t.Errorf("n2 has blocks %v (%v), not its own", state.Blocks["n2"], err)
			}
		})
	}
}

// TestTrapPodThatIsPending plays a pod that waits for its network, without an address in
// its status. Its newly allocated address is not a leak.
func TestTrapPodThatIsPending(t *testing.T) {
	x := newTrap(t)
	ctx := t.Context()
	_, err := x.seeder.Pod(ctx, seeding.Pod{Namespace: "default", Name: "waiting", Node: "n1", Waiting: true})
	must(t, err)
	handle := seeding.Handle("default", "waiting")
	addrs, err := x.client.autoAssign(ctx, ipam.AutoAssignArgs{
		Num4: 1, HandleID: &handle, Hostname: "n1", IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Attrs: map[string]string{ipam.AttributeNode: "n1", ipam.AttributePod: "waiting", ipam.AttributeNamespace: "default"},
	})
	must(t, err)
	x.live[addrs[0]] = handle
	if res := x.repair(t, everything); len(res.Outcomes) > 0 {
		t.Errorf("steps were planned: %+v", res.Outcomes)
	}
}
