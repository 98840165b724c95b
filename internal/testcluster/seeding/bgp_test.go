package seeding

import (
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestBGPIsWritten checks that a topology can be created, changed and removed.
func TestBGPIsWritten(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	s, ctx := newSeeder(t, c), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Node(ctx, Node{Name: "n1", ASNumber: "64700", RouteReflectorID: "10.9.9.9"}))
	annotations := func() map[string]string {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		must(err)
		return n.Annotations
	}
	if a := annotations(); a["projectcalico.org/ASNumber"] != "64700" || a["projectcalico.org/RouteReflectorClusterID"] != "10.9.9.9" {
		t.Errorf("a node with an AS and a cluster ID has %v", a)
	}
	must(s.NodeBGP(ctx, "n1", 64701, ""))
	if a := annotations(); a["projectcalico.org/ASNumber"] != "64701" || a["projectcalico.org/RouteReflectorClusterID"] != "" || a["projectcalico.org/IPv4Address"] == "" {
		t.Errorf("after a change it has %v", a)
	}

	must(s.BGPConfig(ctx, true, 64600))
	must(s.BGPConfig(ctx, false, 64602))
	config, err := s.Calico.BGPConfigurations().Get(ctx, "default", options.GetOptions{})
	must(err)
	if *config.Spec.NodeToNodeMeshEnabled || config.Spec.ASNumber.String() != "64602" {
		t.Errorf("the BGP configuration is %+v", config.Spec)
	}

	must(s.BGPFilter(ctx, "blocks-only", apiv3.BGPFilterSpec{ExportV4: []apiv3.BGPFilterRuleV4{{Action: apiv3.Reject}}}))
	must(s.BGPPeer(ctx, "rr", apiv3.BGPPeerSpec{PeerSelector: "has(rr)", Filters: []string{"blocks-only"}}))
	if err := s.BGPPeer(ctx, "odd", apiv3.BGPPeerSpec{PeerIP: "10.0.0.1", PeerSelector: "has(rr)"}); err == nil {
		t.Error("a peer with both an address and a selector was written")
	}
	must(s.DeleteBGPPeer(ctx, "rr"))
	must(s.DeleteBGPFilter(ctx, "blocks-only"))
	if err := s.DeleteBGPPeer(ctx, "rr"); err == nil {
		t.Error("a peer was deleted twice")
	}
}
