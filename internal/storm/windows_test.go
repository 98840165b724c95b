package storm

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// reservedOnly matches the refusal of a block that holds only addresses which Windows reserves.
var reservedOnly = regexp.MustCompile(`it holds only (.+), which Windows reserves\. .*\(calicoctl (.+)ADDRESS\), and --dead-nodes deletes the block`)

// TestBlocksOfDeletedWindowsNode: a Windows node reserves addresses in its blocks. After the node is
// deleted, a block with another node's pod loses its owner, and Calico's client deletes it with the
// pod's address. A block with only reserved addresses is deleted once these are released as the
// refusal says.
func TestBlocksOfDeletedWindowsNode(t *testing.T) {
	ctx, c := t.Context(), testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "windows", apiv3.IPPoolSpec{CIDR: "10.92.0.0/27", BlockSize: 29}))
	must(t, s.Node(ctx, seeding.Node{Name: "n1"}))
	for _, node := range []string{"alone", "lends"} {
		must(t, s.Node(ctx, seeding.Node{Name: node, OS: "windows"}))
		_, _, err := s.Calico.IPAM().EnsureBlock(ctx, ipam.BlockArgs{Hostname: node, HostReservedAttrIPv4s: keptByWindows})
		must(t, err)
	}
	of := func(node string) []string {
		all, err := c.ReadIPAM(ctx, testcluster.CRDv1)
		must(t, err)
		var out []string
		for _, cidr := range all.Blocks[node] {
			out = append(out, cidr.String())
		}
		return out
	}
	all, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	lent := all.Blocks["lends"][0].Addr().Next().Next().Next()
	_, err = s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "borrower", Node: "n1", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + lent.String() + `"]`}})
	must(t, err)
	must(t, s.DeleteNode(ctx, "alone"))
	must(t, s.DeleteNode(ctx, "lends"))

	tool, err := newTool(c.Config, nil)
	must(t, err)
	clean := func(name string) *repair.Plan {
		time.Sleep(1100 * time.Millisecond) // the API server's timestamps are whole seconds
		plan, err := tool.plan(ctx, repair.Request{DeadNodes: true}, 0)
		must(t, err)
		res, err := tool.apply(context.WithoutCancel(ctx), plan, filepath.Join(t.TempDir(), name), apply.Options{Wait: true})
		must(t, err)
		for _, o := range res.Outcomes {
			if o.Status != repair.Done {
				t.Errorf("%s is %s: %s", o.Step.ID, o.Status, o.Reason)
			}
		}
		return plan
	}
	plan := clean("first")
	if len(plan.Steps) != 1 || plan.Steps[0].Kind != repair.DisownBlock || len(of("lends")) > 0 || len(plan.Refused) != 1 {
		t.Fatalf("steps %v, refused %v", plan.Steps, plan.Refused)
	}
	said := reservedOnly.FindStringSubmatch(plan.Refused[0].Reason)
	if said == nil {
		t.Fatalf("refused: %s", plan.Refused[0].Reason)
	}
	for _, addr := range strings.Split(said[1], ", ") {
		_, err := c.Calicoctl(ctx, strings.Fields(said[2]+addr)...)
		must(t, err)
	}
	if plan := clean("second"); len(plan.Steps) != 1 || plan.Steps[0].Kind != repair.ReleaseBlock || len(of("alone")) > 0 {
		t.Errorf("steps %v, refused %v, and blocks %v", plan.Steps, plan.Refused, of("alone"))
	}
	must(t, s.DeletePod(ctx, "default", "borrower", true))
	w := &World{cluster: c}
	for _, kind := range []string{"ipamblocks", "blockaffinities", "ipamhandles"} {
		left, err := w.objects(ctx, kind)
		must(t, err)
		if len(left) > 0 {
			t.Errorf("%s left: %v", kind, left)
		}
	}
}
