package storm

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// DamageFixture is a state with damage for every kind of repair, next to live pods. The
// damage was made by Calico's own client, by its death at a certain write, or by people
// who delete objects.
type DamageFixture struct {
	// Live holds the addresses in use and their handles.
	Live map[netip.Addr]string

	tb      testing.TB
	seeder  *seeding.Seeder
	client  *Client
	claimed map[netip.Prefix]bool
	left    netip.Prefix // a deleted block of n3, whose confirmed affinity remains
}

// NewDamageFixture creates the damage in a group of Calico's API. All objects are an hour
// old.
func NewDamageFixture(tb testing.TB, c *testcluster.Cluster, group testcluster.Group) *DamageFixture {
	tb.Helper()
	ctx := tb.Context()
	seeder, err := seeding.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	r := &DamageFixture{Live: map[netip.Addr]string{}, tb: tb, seeder: seeder, client: NewClient(tb, c, "calico"), claimed: map[netip.Prefix]bool{}}
	r.must(seeder.Init(ctx))
	r.must(seeder.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	r.must(seeder.Pool(ctx, "four", apiv3.IPPoolSpec{CIDR: "10.90.0.0/24", BlockSize: 29, VXLANMode: apiv3.VXLANModeAlways}))
	r.must(seeder.Pool(ctx, "six", apiv3.IPPoolSpec{CIDR: "fd00:90::/122", BlockSize: 125, VXLANMode: apiv3.VXLANModeAlways}))
	for _, n := range []string{"n1", "n2", "n3", "n4", "n5", "orphan"} {
		r.must(seeder.Node(ctx, seeding.Node{Name: n}))
	}
	r.pods(ctx)
	r.handles(ctx)
	r.blocks(ctx)
	r.affinities(ctx)
	r.borrowed(ctx)
	r.restored(ctx)
	r.must(seeder.DeleteNode(ctx, "orphan"))
	if group == testcluster.NativeV3 {
		r.must(testcluster.MoveToNative(ctx, c))
	}
	r.must(c.Backdate(ctx, time.Hour))
	r.must(c.Heartbeat(ctx))
	return r
}

func (r *DamageFixture) must(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatalf("making the damage: %v", err)
	}
}

func (r *DamageFixture) pod(ctx context.Context, name, node string, dual bool) []netip.Addr {
	r.tb.Helper()
	addrs, err := r.seeder.Pod(ctx, seeding.Pod{Namespace: "default", Name: name, Node: node, DualStack: dual})
	r.must(err)
	for _, a := range addrs {
		r.Live[a] = seeding.Handle("default", name)
	}
	return addrs
}

// leak deletes a pod without releasing its addresses.
func (r *DamageFixture) leak(ctx context.Context, name string) {
	r.tb.Helper()
	r.must(r.seeder.DeletePod(ctx, "default", name, false))
	r.forget(name)
}

func (r *DamageFixture) forget(name string) {
	for a, handle := range r.Live {
		if handle == seeding.Handle("default", name) {
			delete(r.Live, a)
		}
	}
}

func (r *DamageFixture) pods(ctx context.Context) {
	for i, node := range []string{"n1", "n2", "n3", "n4", "n5"} {
		r.pod(ctx, "live-"+node, node, i < 2)
	}
	for _, t := range []seeding.Tunnel{seeding.VXLAN, seeding.VXLANv6} {
		addr, err := r.seeder.Tunnel(ctx, t, "n1")
		r.must(err)
		r.Live[addr] = t.Handle("n1")
	}
	r.pod(ctx, "leak-1", "n1", false)
	r.pod(ctx, "leak-2", "n2", true)
	r.leak(ctx, "leak-1")
	r.leak(ctx, "leak-2")
}

// handles creates a handle of an allocation that never happened, one that is marked
// deleted, and one that counts too many addresses.
func (r *DamageFixture) handles(ctx context.Context) {
	handle := "k8s-pod-network.never"
	r.dies(1, true, func() {
		_, _, _ = r.client.IPAM.AutoAssign(ctx, ipam.AutoAssignArgs{
			Num4: 1, HandleID: &handle, Hostname: "n1", IntendedUse: apiv3.IPPoolAllowedUseWorkload,
			Attrs: map[string]string{ipam.AttributeNode: "n1", ipam.AttributePod: "never", ipam.AttributeNamespace: "default"},
		})
	})
	r.pod(ctx, "half-released", "n3", false)
	r.dies(2, true, func() {
		_ = r.client.IPAM.ReleaseByHandle(ctx, seeding.Handle("default", "half-released"))
	})
	r.leak(ctx, "half-released")
	resource := testcluster.CRDv1.Resource("ipamhandles")
	r.must(r.seeder.Cluster.Edit(ctx, resource, "", seeding.Handle("default", "live-n3"), func(object map[string]any) {
		counts := object["spec"].(map[string]any)["block"].(map[string]any)
		for block := range counts {
			counts[block] = int64(3)
		}
	}))
}

// blocks creates empty blocks of both families in addition to another block of their node, an empty
// block of a deleted node, and one that is marked deleted.
func (r *DamageFixture) blocks(ctx context.Context) {
	r.claim(ctx, "n1", four)
	r.claim(ctx, "n1", six)
	r.claim(ctx, "orphan", four)
	marked := r.claim(ctx, "n3", four)
	r.dies(2, true, func() { _ = r.client.IPAM.ReleaseAffinity(ctx, calicoNet(marked), "n3", true) })
}

// affinities creates: two affinities in different states, which Calico's own release left without a
// block; affinities whose block was deleted by hand, and in one case claimed by another node since;
// one affinity to a block without an owner; and a block without an affinity.
func (r *DamageFixture) affinities(ctx context.Context) {
	orphan := r.claim(ctx, "n2", four)
	r.dies(4, false, func() { _ = r.client.IPAM.ReleaseAffinity(ctx, calicoNet(orphan), "n2", true) })
	marked := r.claim(ctx, "n2", four)
	r.dies(4, true, func() { _ = r.client.IPAM.ReleaseAffinity(ctx, calicoNet(marked), "n2", true) })
	r.left = r.claim(ctx, "n3", four)
	r.losesBlock(ctx, r.left)
	taken := r.claim(ctx, "n2", four)
	r.losesBlock(ctx, taken)
	r.must(r.seeder.ClaimBlocks(ctx, "n4", taken))

	disowned := r.blockOf(ctx, "live-n5")
	r.dies(3, false, func() { _ = r.client.IPAM.ReleaseAffinity(ctx, calicoNet(disowned), "n5", false) })
	r.must(r.seeder.Cluster.Delete(ctx, testcluster.CRDv1.Resource("blockaffinities"), "", affinityName("n4", r.blockOf(ctx, "live-n4"))))
}

// borrowed creates a block of the deleted node with an address of another node's pod.
func (r *DamageFixture) borrowed(ctx context.Context) {
	block := r.claim(ctx, "orphan", four)
	addrs, err := r.seeder.Pod(ctx, seeding.Pod{
		Namespace: "default", Name: "borrower", Node: "n1",
		Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + block.Addr().Next().String() + `"]`},
	})
	r.must(err)
	r.Live[addrs[0]] = seeding.Handle("default", "borrower")
}

// restored creates the damage of a datastore that was restored from a backup: a pod's
// address is not recorded, that of another is recorded for a deleted pod, and a third pod's
// handle is missing. The first two addresses are not in Live, because they are not their
// pods' until they are recorded.
func (r *DamageFixture) restored(ctx context.Context) {
	r.pod(ctx, "unrecorded", "n1", false)
	r.must(r.seeder.ReleaseHandle(ctx, seeding.Handle("default", "unrecorded")))
	r.forget("unrecorded")
	addr, block := r.pod(ctx, "misrecorded", "n2", false)[0], r.blockOf(ctx, "misrecorded")
	r.must(restoreRecord(ctx, r.seeder.Cluster, block, addr, seeding.Handle("default", "misrecorded"), "deleted", seeding.Handle("default", "deleted")))
	r.forget("misrecorded")
	r.pod(ctx, "without-handle", "n1", false)
	r.must(r.seeder.Cluster.Delete(ctx, testcluster.CRDv1.Resource("ipamhandles"), "", seeding.Handle("default", "without-handle")))
}

// dies lets the client die before or after one of its writes.
func (r *DamageFixture) dies(k int, after bool, do func()) {
	r.tb.Helper()
	r.client.FaultProxy.Die(k, after)
	do()
	if !r.client.FaultProxy.Reset() {
		r.tb.Fatalf("making the damage: the client ended after %v, before write %d", r.client.FaultProxy.Writes(), k)
	}
}

var (
	four = netip.MustParsePrefix("10.90.0.0/24")
	six  = netip.MustParsePrefix("fd00:90::/122")
)

// claim makes a node the owner of the next unclaimed block.
func (r *DamageFixture) claim(ctx context.Context, node string, pool netip.Prefix) netip.Prefix {
	r.tb.Helper()
	state, err := r.seeder.Cluster.ReadIPAM(ctx, testcluster.CRDv1)
	r.must(err)
	for _, cidrs := range state.Blocks {
		for _, cidr := range cidrs {
			r.claimed[cidr] = true
		}
	}
	block := netip.PrefixFrom(pool.Addr(), pool.Addr().BitLen()-3)
	for r.claimed[block] {
		addr := block.Addr()
		for range 8 {
			addr = addr.Next()
		}
		block = netip.PrefixFrom(addr, block.Bits())
	}
	r.claimed[block] = true
	r.must(r.seeder.ClaimBlocks(ctx, node, block))
	return block
}

// losesBlock deletes a block, as people do with kubectl.
func (r *DamageFixture) losesBlock(ctx context.Context, block netip.Prefix) {
	r.tb.Helper()
	r.must(r.seeder.Cluster.Delete(ctx, testcluster.CRDv1.Resource("ipamblocks"), "", blockName(block)))
}

// blockOf returns the block of a pod's IPv4 address.
func (r *DamageFixture) blockOf(ctx context.Context, pod string) netip.Prefix {
	r.tb.Helper()
	state, err := r.seeder.Cluster.ReadIPAM(ctx, testcluster.CRDv1)
	r.must(err)
	for a, handle := range r.Live {
		if handle != seeding.Handle("default", pod) || !a.Is4() {
			continue
		}
		for _, cidrs := range state.Blocks {
			for _, cidr := range cidrs {
				if cidr.Contains(a) {
					return cidr
				}
			}
		}
	}
	r.must(fmt.Errorf("pod %s has no block", pod))
	return netip.Prefix{}
}
