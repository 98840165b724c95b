package seeding

import (
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestKubeControllersCollects checks that the real kube-controllers collects a leaked
// address after the configured grace period, and continues after the API server was
// killed and started again.
func TestKubeControllersCollects(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Start(t, testcluster.Options{})
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Init(ctx))
	must(s.SetLeakGrace(ctx, 2*time.Second))
	must(s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/24", BlockSize: 28}))
	must(s.Node(ctx, Node{Name: "n1"}))
	k := c.StartKubeControllers(t)
	leak := func(name string) {
		t.Helper()
		if _, err := s.Pod(ctx, Pod{Namespace: "default", Name: name, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		must(s.DeletePod(ctx, "default", name, false))
		deadline := time.Now().Add(time.Minute)
		for {
			state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
			must(err)
			if len(state.Allocations["n1"]) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the leak of pod %s was not collected:\n%s", name, k.Log())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	leak("before")
	c.StopAPIServer()
	must(c.StartAPIServer(ctx))
	leak("after")
	if !k.Running() {
		t.Error("it did not survive the restart of the API server")
	}
	k.Stop()
	if k.Running() {
		t.Error("it runs after it was stopped")
	}
}
