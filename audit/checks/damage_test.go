package checks_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

func (p *play) edit(plural, name string, change func(spec map[string]any)) {
	p.t.Helper()
	p.must(p.c.Edit(p.ctx, testcluster.CRDv1.Resource(plural), "", name, func(o map[string]any) { change(o["spec"].(map[string]any)) }))
}

func (p *play) remove(plural, name string) {
	p.t.Helper()
	p.must(p.c.Delete(p.ctx, testcluster.CRDv1.Resource(plural), "", name))
}

// TestDamage creates damage seen in real clusters on a real API server: with Calico's own IPAM
// client if that causes the damage, otherwise with raw writes. The audit must report all effects and
// nothing else.
func TestDamage(t *testing.T) {
	// In every case, nodes n1 and n2 exist, and n1 holds 10.0.0.0/29 with one pod, unless the case
	// recreates that block.
	cases := []struct {
		name   string
		damage func(*play)
		want   []string
	}{
		{"nothing", func(*play) {}, nil},
		{"somebody deletes a block by hand", func(p *play) {
			if _, err := p.pod("n2", "other"); err != nil { // a cluster without any block is incomplete
				p.t.Fatal(err)
			}
			p.remove("ipamblocks", "10-0-0-0-29")
		},
			[]string{"critical ip/unallocated", "error affinity/no-block", "warning handle/leaked"}},
		{"a second affinity to one block", func(p *play) {
			p.must(p.c.Create(p.ctx, testcluster.CRDv1.Resource("blockaffinities"), map[string]any{
				"metadata": map[string]any{"name": "n2-10-0-0-0-29"},
				"spec":     map[string]any{"cidr": "10.0.0.0/29", "node": "n2", "state": "confirmed", "deleted": "false", "type": "host"},
			}))
		}, []string{"critical affinity/not-owner"}},
		{"an affinity is deleted by hand", func(p *play) { p.remove("blockaffinities", "n1-10-0-0-0-29") },
			[]string{"error block/no-affinity"}},
		{"a release that broke off", func(p *play) {
			p.edit("blockaffinities", "n1-10-0-0-0-29", func(s map[string]any) { s["state"] = "pendingDeletion" })
		}, []string{"warning affinity/stuck"}},
		{"a deletion that broke off", func(p *play) {
			p.edit("ipamblocks", "10-0-0-0-29", func(s map[string]any) { s["deleted"] = true })
		}, []string{"warning block/soft-deleted"}},
		{"a block edited by hand", func(p *play) {
			p.edit("ipamblocks", "10-0-0-0-29", func(s map[string]any) {
				s["unallocated"] = append(s["unallocated"].([]any), s["unallocated"].([]any)[0])
			})
		}, []string{"error block/corrupt"}},
		{"a node that vanishes with its pods", func(p *play) {
			p.must(p.s.DeletePod(p.ctx, "default", "n1-0", false))
			p.must(p.s.DeleteNode(p.ctx, "n1"))
		}, []string{"warning affinity/dead-node", "warning block/dead-node", "warning ip/leaked"}},
		{"a pod that dies without the plugin being told", func(p *play) {
			p.must(p.s.DeletePod(p.ctx, "default", "n1-0", false))
		}, []string{"warning ip/leaked"}},
		{"an address released under a live pod", func(p *play) { p.must(p.s.ReleaseIP(p.ctx, p.addr("n1-0"))) },
			[]string{"critical ip/unallocated"}},
		{"and given to another pod", func(p *play) {
			a := p.addr("n1-0")
			p.must(p.s.ReleaseIP(p.ctx, a))
			_, err := p.s.Pod(p.ctx, seeding.Pod{Namespace: "default", Name: "thief", Node: "n1",
				Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + a.String() + `"]`}})
			p.must(err)
		}, []string{"critical ip/duplicate"}},
		{"a handle is deleted by hand", func(p *play) { p.remove("ipamhandles", seeding.Handle("default", "n1-0")) },
			[]string{"warning handle/missing"}},
		{"Calico miscounts when two addresses of a handle go at once", func(p *play) {
			handle := "three"
			got, _, err := p.s.Calico.IPAM().AutoAssign(p.ctx, ipam.AutoAssignArgs{Num4: 3, HandleID: &handle, Hostname: "n1",
				IntendedUse: apiv3.IPPoolAllowedUseWorkload, Attrs: map[string]string{"node": "n1", "pod": "n1-0", "namespace": "default"}})
			p.must(err)
			_, _, err = p.s.Calico.IPAM().ReleaseIPs(p.ctx,
				ipam.ReleaseOptions{Address: got.IPs[0].IP.String()}, ipam.ReleaseOptions{Address: got.IPs[1].IP.String()})
			p.must(err)
		}, []string{"info handle/count", "warning ip/leaked"}},
		{"the pool is deleted under its blocks", func(p *play) { p.remove("ippools", "pods") },
			[]string{"warning block/no-pool", "warning node/no-block"}},
		{"the block size is changed, and Calico claims over an old block", func(p *play) {
			p.must(p.s.EditPool(p.ctx, "pods", func(s map[string]any) { s["cidr"], s["blockSize"] = "10.0.0.0/28", int64(28) }))
			if _, err := p.pod("n2", "over"); err != nil {
				p.t.Fatal(err)
			}
		}, []string{"critical block/overlap", "info block/size-mismatch", "warning pool/low-free-blocks", "warning pool/no-free-blocks", "warning pool/undersized"}},
		{"the datastore stays locked", func(p *play) { p.must(p.s.LockDatastore(p.ctx, true)) },
			[]string{"error config/datastore-locked"}},
	}
	c := testcluster.Shared(t, testcluster.Options{})
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			p := newPlay(t, c)
			p.pool("10.0.0.0/24", nil)
			p.must(p.s.Node(p.ctx, seeding.Node{Name: "n1", AllocatablePods: 8}))
			p.must(p.s.Node(p.ctx, seeding.Node{Name: "n2", AllocatablePods: 8}))
			// The first pod asks for an address of the block, so the test knows its CIDR.
			_, err := p.s.Pod(p.ctx, seeding.Pod{Namespace: "default", Name: "n1-0", Node: "n1",
				Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["10.0.0.1"]`}})
			p.must(err)
			x.damage(p)
			p.must(c.Backdate(p.ctx, time.Hour))

			var got []string
			for _, f := range audit.Run(p.read(), checks.All).Findings {
				// It is normal that n2 has not run a pod yet, and that nothing is releasable.
				if s := f.Severity.String() + " " + f.Check; (f.Severity > state.Info || f.Check == "handle/count" || f.Check == "block/size-mismatch") && !slices.Contains(got, s) {
					got = append(got, s)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, x.want) {
				t.Errorf("got %v\nwant %v", got, x.want)
				for _, f := range audit.Run(p.read(), checks.All).Findings {
					t.Logf("%s %s: %s", f.Severity, f.Check, f.Message)
				}
			}
		})
	}
}

// addr returns the address of a pod in namespace "default".
func (p *play) addr(name string) netip.Addr {
	p.t.Helper()
	w := p.read().Pod("default", name)
	if w == nil || len(w.StatusIPs) == 0 {
		p.t.Fatalf("pod %s has no address", name)
	}
	return w.StatusIPs[0]
}
