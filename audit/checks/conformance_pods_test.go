package checks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestPodsAgreeWithCalico: whether a pod gets an address, and whether the block limit applies,
// depends on the pools that may serve the pod, not on other blocks of its node. A pod with a
// request that Calico rejects has a finding of its own and proves nothing about its node.
func TestPodsAgreeWithCalico(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	p := newPlay(t, c)
	p.config(true, true, 1)
	p.must(p.s.Namespace(p.ctx, "sky", map[string]string{"team": "blue"}, nil))
	p.must(p.s.Namespace(p.ctx, "shop", map[string]string{"team": "red"}, nil))
	p.must(p.s.Namespace(p.ctx, "odd", map[string]string{"team": "none"}, nil))
	p.pool("10.0.0.0/26", func(s *apiv3.IPPoolSpec) {
		s.NamespaceSelector, s.AllowedUses = "team == 'blue'", []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseWorkload}
	})
	p.must(p.s.Pool(p.ctx, "red", apiv3.IPPoolSpec{
		CIDR: "10.1.0.0/26", BlockSize: 29, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever,
		NamespaceSelector: "team == 'red'", AllowedUses: []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseWorkload},
	}))
	p.node("n1")
	for i, x := range []struct {
		name  string
		pod   seeding.Pod
		cause state.Cause // CauseNone if Calico assigns an address, or rejects the request
		// rejected is the pool for which Calico rejects the pod's request.
		rejected string
	}{
		{"the first of its namespace", seeding.Pod{Namespace: "sky"}, state.CauseNone, ""},
		{"at the limit in another namespace's pool only", seeding.Pod{Namespace: "shop"}, state.CauseNone, ""},
		{"no pool selects its namespace", seeding.Pod{Namespace: "odd"}, state.CauseUnserved, ""},
		{"it asks for a pool that does not exist, beside one that does", seeding.Pod{Namespace: "sky",
			Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": `["pods","nosuch"]`}}, state.CauseNone, "nosuch"},
		{"it asks for another namespace's pool", seeding.Pod{Namespace: "odd",
			Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": `["pods"]`}}, state.CauseNone, ""},
	} {
		x.pod.Name, x.pod.Node = fmt.Sprintf("probe-%d", i), "n1"
		t.Run(x.name, func(t *testing.T) {
			addrs, err := p.s.Pod(p.ctx, x.pod)
			if (err == nil) != (x.cause == state.CauseNone && x.rejected == "") || err != nil && !errors.Is(err, seeding.ErrNoAddress) {
				t.Fatalf("Calico's allocator: %v, %v", addrs, err)
			}
			st := p.read()
			stuck := st.NodeState("n1").BlockStatus[0].Stuck
			var found *audit.Finding
			for _, f := range audit.Run(st, checks.All).Findings {
				if f.Check == "node/no-block" {
					found = &f
				}
			}
			waits := ""
			for _, w := range waiting.Of(st).All {
				waits += w.Text()
			}
			if !strings.Contains(waits, x.rejected) || (waits != "") != (x.rejected != "") {
				t.Errorf("it waits: %q; want it for pool %q", waits, x.rejected)
			}
			switch {
			case x.cause == state.CauseNone && (len(stuck) > 0 || found != nil):
				t.Errorf("it got %v, and is called stuck: %+v, %+v", addrs, stuck, found)
			case x.cause != state.CauseNone && (len(stuck) != 1 || stuck[0].Cause != x.cause):
				t.Errorf("stuck: %+v; want cause %q", stuck, x.cause)
			case x.cause != state.CauseNone && (found == nil || found.Severity != state.Critical):
				t.Errorf("node/no-block: %+v; want it critical", found)
			}
			if err != nil {
				p.must(p.s.DeletePod(p.ctx, x.pod.Namespace, x.pod.Name, false))
			}
		})
	}
}
