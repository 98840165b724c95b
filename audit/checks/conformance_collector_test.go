package checks_test

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestCollectorAgreesWithCalico compares the predictions of package collector with what Calico's
// own kube-controllers does to the same cluster.
func TestCollectorAgreesWithCalico(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	p := newPlay(t, c)
	p.must(p.s.SetLeakGrace(p.ctx, 2*time.Second))
	p.pool("10.0.0.0/24", nil)
	for _, name := range []string{"n1", "n2", "n3", "lost", "kept"} {
		p.node(name)
	}
	run := func(node, name string) (*corev1.Pod, netip.Addr) {
		t.Helper()
		addrs, err := p.s.Pod(p.ctx, seeding.Pod{Namespace: "default", Name: name, Node: node})
		p.must(err)
		pod, err := c.Kube.CoreV1().Pods("default").Get(p.ctx, name, metav1.GetOptions{})
		p.must(err)
		return pod, addrs[0]
	}
	addrs := map[string]netip.Addr{}

	_, a := run("n1", "live")
	addrs["a live pod's"] = a
	_, a = run("n1", "gone")
	addrs["a deleted pod's"] = a
	p.must(p.s.DeletePod(p.ctx, "default", "gone", false))
	_, a = run("n1", "done")
	addrs["a finished pod's"] = a
	p.must(p.s.EndPod(p.ctx, "default", "done", corev1.PodSucceeded, false))
	_, a = run("n1", "evicted")
	addrs["a finished pod's without an address in its status"] = a
	p.must(p.s.EndPod(p.ctx, "default", "evicted", corev1.PodFailed, false))
	_, err := c.Kube.CoreV1().Pods("default").Patch(p.ctx, "evicted", types.MergePatchType, []byte(`{"status":{"podIP":null,"podIPs":null}}`), metav1.PatchOptions{}, "status")
	p.must(err)
	multi, _ := run("n1", "multi")
	further, err := p.s.SetUp(p.ctx, multi, "further")
	p.must(err)
	addrs["a live pod's on a further interface"] = further[0]
	moved, _ := run("n2", "moved")
	moved.Spec.NodeName = "n1"
	old, err := p.s.SetUp(p.ctx, moved, "old")
	p.must(err)
	addrs["recorded for another node"] = old[0]
	p.must(p.s.ClaimBlocks(p.ctx, "n1", netip.MustParsePrefix("10.0.0.248/29")))
	p.must(p.s.ClaimBlocks(p.ctx, "n3", netip.MustParsePrefix("10.0.0.240/29")))
	_, a = run("lost", "lost")
	addrs["a deleted pod's of a deleted node"] = a
	p.must(p.s.DeletePod(p.ctx, "default", "lost", false))
	_, a = run("kept", "kept")
	addrs["an existing pod's of a deleted node"] = a
	p.must(p.s.DeleteNode(p.ctx, "lost"))
	p.must(p.s.DeleteNode(p.ctx, "kept"))

	st := p.read()
	frees, keeps := map[string]string{}, map[string]string{} // reasons, by address or CIDR
	predict := func(key, what string, x collector.Prediction) {
		t.Helper()
		switch what += ": " + x.Text(""); {
		case x.Why == "":
			t.Errorf("%s: no prediction", what)
		case x.Frees:
			frees[key] = what
		default:
			keeps[key] = what
		}
	}
	for what, a := range addrs {
		r, ok := st.Allocation(a)
		if !ok {
			t.Fatalf("%s is not allocated", what)
		}
		predict(a.String(), what, collector.OfAddress(st, r))
	}
	for _, b := range st.IPBlocks {
		if b.Used == 0 || st.Vanished(b.Owner.Node()) {
			predict(b.CIDR.String(), "block of "+b.Owner.Node(), collector.OfBlock(st, b))
		}
	}
	if len(frees) != 7 || len(keeps) != 5 {
		t.Errorf("predicted to free: %v\nto keep: %v", frees, keeps)
	}

	theirs := c.StartKubeControllers(t)
	exists := func(key string, st *state.State) bool {
		if cidr, err := netip.ParsePrefix(key); err == nil {
			return st.BlockOf(cidr) != nil
		}
		_, ok := st.Allocation(netip.MustParseAddr(key))
		return ok
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		st, left := p.read(), ""
		for key, what := range frees {
			if exists(key, st) {
				left = what
			}
		}
		if left == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("kube-controllers does not free %s:\n%s", left, theirs.Log())
		}
	}
	time.Sleep(10 * time.Second) // several passes
	st = p.read()
	for key, what := range keeps {
		if !exists(key, st) {
			t.Errorf("kube-controllers freed %s", what)
		}
	}
}
