package story

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestLastBlockGoesToTheWaiting plays strict affinity with a used-up pool. A pod waits
// while a cordoned node holds an empty block. Since that is the node's last block,
// --empty-blocks keeps it and names the flag that would release it. With that flag,
// Calico's own client gives the block to the node of the waiting pod.
func TestLastBlockGoesToTheWaiting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := raise(t)
	must(t, s.seeder.Init(ctx))
	must(t, s.seeder.SetIPAMConfig(ctx, ipam.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true}))
	must(t, s.seeder.Pool(ctx, pool, apiv3.IPPoolSpec{CIDR: "10.64.75.0/29", BlockSize: 30, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}))
	must(t, s.seeder.Namespace(ctx, shop, nil, nil))
	for _, node := range []string{"busy", "idle", "new"} {
		must(t, s.seeder.Node(ctx, seeding.Node{Name: node}))
	}
	running := kubelets.Start(t, s.seeder, kubelets.Options{})
	last := netip.MustParsePrefix("10.64.75.4/30")
	must(t, s.seeder.ClaimBlocks(ctx, "busy", netip.MustParsePrefix("10.64.75.0/30")))
	s.bind(t, "web", "busy")
	s.awaitPod(t, "web", isHealthy)
	// This client's release takes over an empty block even if it was claimed a minute
	// ago.
	must(t, s.seeder.ClaimBlocks(ctx, "idle", last))
	s.bind(t, "late", "new")
	s.awaitPod(t, "late", func(pod *corev1.Pod) bool { return len(pod.Status.ContainerStatuses) > 0 && pod.Status.PodIP == "" })
	running.Stop()
	s.cordonNode(t, "idle", true)
	time.Sleep(2 * time.Second) // objects record their last write in seconds; a state written within this second would not count as old

	repair := []string{"repair", "--empty-blocks", "--apply", "--yes", "--grace=0s", "--kubeconfig", s.KubeconfigPath()}
	code, out, log := run(t, t.TempDir(), repair...)
	if code != 0 || !strings.Contains(strings.Join(strings.Fields(out+log), " "), "--last-blocks releases it for a node that cannot allocate: new") {
		t.Errorf("without the consent it ends with %d, and says:\n%s%s", code, out, log)
	}
	s.hasBlocks(t, "idle", last)
	code, out, log = run(t, t.TempDir(), append(slices.Clone(repair), "--last-blocks")...)
	if code != 0 {
		t.Fatalf("with the consent it ends with %d:\n%s%s", code, out, log)
	}
	s.hasBlocks(t, "idle")
	kubelets.Start(t, s.seeder, kubelets.Options{})
	s.awaitPod(t, "late", isHealthy)
	s.hasBlocks(t, "new", last)
	for _, f := range reportOf(t, s.Cluster).Findings {
		if f.Severity >= state.Error {
			t.Errorf("left: %s: %s", f.Check, f.Message)
		}
	}
}

// bind creates a pod that is already bound to a node.
func (s *story) bind(t *testing.T, name, node string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template(name).Spec}
	pod.Spec.NodeName = node
	_, err := s.Kube.CoreV1().Pods(shop).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
}

func (s *story) awaitPod(t *testing.T, name string, is func(*corev1.Pod) bool) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		pod, err := s.Kube.CoreV1().Pods(shop).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !is(pod) {
			err = fmt.Errorf("pod %s is %+v", name, pod.Status)
		}
		return err
	})
}

// hasBlocks fails the test unless the node has exactly these blocks.
func (s *story) hasBlocks(t *testing.T, node string, want ...netip.Prefix) {
	t.Helper()
	ipam, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	if got := ipam.Blocks[node]; !slices.Equal(got, want) {
		t.Errorf("node %s has the blocks %v, not %v", node, got, want)
	}
}
