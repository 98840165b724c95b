package seeding

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

func newSeeder(t *testing.T, c *testcluster.Cluster) *Seeder {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seedPool(t *testing.T, s *Seeder) {
	t.Helper()
	err := s.Pool(t.Context(), "pods", apiv3.IPPoolSpec{CIDR: "10.90.0.0/24", BlockSize: 28})
	if err != nil {
		t.Fatal(err)
	}
}

// seedNode creates the node n1.
func seedNode(t *testing.T, s *Seeder) {
	t.Helper()
	if err := s.Node(t.Context(), Node{Name: "n1"}); err != nil {
		t.Fatal(err)
	}
}

func seedPod(t *testing.T, s *Seeder, p Pod) []netip.Addr {
	t.Helper()
	addrs, err := s.Pod(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// getPod reads a pod in the namespace default.
func getPod(t *testing.T, c *testcluster.Cluster, name string) *corev1.Pod {
	t.Helper()
	pod, err := c.Kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func readIPAM(t *testing.T, c *testcluster.Cluster) *testcluster.IPAMState {
	t.Helper()
	state, err := c.ReadIPAM(t.Context(), testcluster.CRDv1)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestPodIsWhatACNIPluginLeaves(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	s := newSeeder(t, c)
	seedPool(t, s)
	seedNode(t, s)
	addrs := seedPod(t, s, Pod{Namespace: "default", Name: "p1", Node: "n1"})
	if len(addrs) != 1 {
		t.Fatalf("the pod got %v, not one address", addrs)
	}
	ip := addrs[0].String()

	pod := getPod(t, c, "p1")
	want := map[string]string{
		"cni.projectcalico.org/podIP": ip + "/32", "cni.projectcalico.org/podIPs": ip + "/32",
		"cni.projectcalico.org/containerID": ContainerID("default", "p1"),
	}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP != ip || pod.Status.HostIP != "172.16.0.11" {
		t.Errorf("status: phase %s, pod IP %s, host IP %s", pod.Status.Phase, pod.Status.PodIP, pod.Status.HostIP)
	}

	state := readIPAM(t, c)
	if len(state.Blocks["n1"]) != 1 || !cmp.Equal(state.Blocks, state.Affinities, comparePrefixes) {
		t.Errorf("blocks %v, affinities %v: not one block of n1", state.Blocks, state.Affinities)
	}
	handles, err := c.List(t.Context(), testcluster.CRDv1.Resource("ipamhandles"))
	if err != nil {
		t.Fatal(err)
	}
	if len(handles) != 1 || handles[0].GetName() != Handle("default", "p1") {
		t.Errorf("handles: %v, not one called %s", handles, Handle("default", "p1"))
	}
}

func TestPodsThatHaveNoAddress(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedNode(t, s)

	seedPod(t, s, Pod{Namespace: "default", Name: "host", Node: "n1", HostNetwork: true})
	if pod := getPod(t, c, "host"); pod.Status.PodIP != pod.Status.HostIP || pod.Status.PodIP == "" {
		t.Errorf("the pod on the host's network has address %q, the host %q", pod.Status.PodIP, pod.Status.HostIP)
	}
	seedPod(t, s, Pod{Namespace: "default", Name: "waiting", Node: "n1", Waiting: true})
	_, err := s.Pod(ctx, Pod{Namespace: "default", Name: "unlucky", Node: "n1"})
	if !errors.Is(err, ErrNoAddress) {
		t.Errorf("without a pool, a pod gives %v, not that there is no address", err)
	}
	for _, name := range []string{"waiting", "unlucky"} {
		if pod := getPod(t, c, name); pod.Status.Phase != corev1.PodPending || pod.Status.PodIP != "" {
			t.Errorf("pod %s is %s with address %q, not Pending without", name, pod.Status.Phase, pod.Status.PodIP)
		}
	}
	if state := readIPAM(t, c); state.Handles != 0 {
		t.Errorf("there are %d handles, not 0", state.Handles)
	}
}

func TestPoolsByAnnotation(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedPool(t, s)
	for name, cidr := range map[string]string{"special": "10.91.0.0/24", "other": "10.92.0.0/24"} {
		err := s.Pool(ctx, name, apiv3.IPPoolSpec{CIDR: cidr, BlockSize: 28, NodeSelector: "!all()"})
		if err != nil {
			t.Fatal(err)
		}
	}
	seedNode(t, s)
	err := s.Namespace(ctx, "tenant", nil, map[string]string{"cni.projectcalico.org/ipv4pools": `["special"]`})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		pod  Pod
		want string
	}{
		{Pod{Namespace: "default", Name: "plain"}, "10.90."},
		{Pod{Namespace: "tenant", Name: "by-namespace"}, "10.91."},
		{Pod{Namespace: "tenant", Name: "by-pod", Annotations: map[string]string{
			"cni.projectcalico.org/ipv4pools": `["10.92.0.0/24"]`}}, "10.92."},
		{Pod{Namespace: "default", Name: "fixed", Annotations: map[string]string{
			"cni.projectcalico.org/ipAddrs": `["10.90.0.77"]`}}, "10.90.0.77"},
	}
	for _, test := range tests {
		test.pod.Node = "n1"
		if got := seedPod(t, s, test.pod)[0].String(); !strings.HasPrefix(got, test.want) {
			t.Errorf("pod %s got %s, not one of %s", test.pod.Name, got, test.want)
		}
	}
}

func TestEndsOfPods(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedPool(t, s)
	seedNode(t, s)
	for _, name := range []string{"done", "dying", "torn", "leaking", "gone"} {
		seedPod(t, s, Pod{Namespace: "default", Name: name, Node: "n1"})
	}
	err := errors.Join(
		s.EndPod(ctx, "default", "done", corev1.PodSucceeded, true),
		s.TerminatePod(ctx, "default", "dying", false),
		s.TerminatePod(ctx, "default", "torn", true),
		s.DeletePod(ctx, "default", "leaking", false),
		s.DeletePod(ctx, "default", "gone", true),
	)
	if err != nil {
		t.Fatal(err)
	}

	done := getPod(t, c, "done")
	if done.Status.Phase != corev1.PodSucceeded || done.Status.PodIP == "" || done.Annotations["cni.projectcalico.org/podIP"] != "" {
		t.Errorf("the finished pod is %s with address %q and annotations %v", done.Status.Phase, done.Status.PodIP, done.Annotations)
	}
	dying, torn := getPod(t, c, "dying"), getPod(t, c, "torn")
	if dying.DeletionTimestamp == nil || dying.Annotations["cni.projectcalico.org/podIP"] == "" {
		t.Errorf("the dying pod is deleted at %v and has annotations %v", dying.DeletionTimestamp, dying.Annotations)
	}
	if torn.DeletionTimestamp == nil || torn.Annotations["cni.projectcalico.org/podIP"] != "" {
		t.Errorf("the torn-down pod is deleted at %v and has annotations %v", torn.DeletionTimestamp, torn.Annotations)
	}
	pods, err := c.List(ctx, testcluster.Core[2])
	if err != nil || len(pods) != 3 {
		t.Errorf("%d pods are left (%v), not 3", len(pods), err)
	}
	// The addresses of the terminating pod and the leaked address are still allocated.
	if state := readIPAM(t, c); len(state.Allocations["n1"]) != 2 || state.Handles != 2 {
		t.Errorf("%d addresses and %d handles are left, not 2 and 2", len(state.Allocations["n1"]), state.Handles)
	}
}

func TestTunnelAddresses(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedPool(t, s)
	if err := s.Pool(ctx, "pods6", apiv3.IPPoolSpec{CIDR: "fd00:90::/116", BlockSize: 122}); err != nil {
		t.Fatal(err)
	}
	seedNode(t, s)
	want := map[string]string{"projectcalico.org/IPv4Address": "172.16.0.11/16"}
	for annotation, tunnel := range map[string]Tunnel{
		"projectcalico.org/IPv4IPIPTunnelAddr":         IPIP,
		"projectcalico.org/IPv4VXLANTunnelAddr":        VXLAN,
		"projectcalico.org/IPv6VXLANTunnelAddr":        VXLANv6,
		"projectcalico.org/IPv4WireguardInterfaceAddr": WireGuard,
		"projectcalico.org/IPv6WireguardInterfaceAddr": WireGuardV6,
	} {
		addr, err := s.Tunnel(ctx, tunnel, "n1")
		if err != nil {
			t.Fatal(err)
		}
		want[annotation] = addr.String()
		if _, err := c.Get(ctx, testcluster.CRDv1.Resource("ipamhandles"), "", tunnel.Handle("n1")); err != nil {
			t.Error(err)
		}
	}
	node, err := c.Kube.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, node.Annotations); diff != "" {
		t.Errorf("annotations of the node (-want +got):\n%s", diff)
	}
}

func TestBlocksAreClaimedAndReleased(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedPool(t, s)
	seedNode(t, s)
	cidr := netip.MustParsePrefix("10.90.0.32/27")
	if err := s.ClaimBlocks(ctx, "n1", cidr); err != nil {
		t.Fatal(err)
	}
	if state := readIPAM(t, c); len(state.Blocks["n1"]) != 2 || len(state.Affinities["n1"]) != 2 || len(state.Empty) != 2 {
		t.Errorf("after claiming %s there are %+v, not two empty blocks of n1", cidr, state)
	}
	if err := s.ClaimBlocks(ctx, "n2", cidr); err == nil {
		t.Error("another node claims the same blocks without error")
	}
	if err := s.ReleaseBlocks(ctx, "n1", cidr, true); err != nil {
		t.Fatal(err)
	}
	if state := readIPAM(t, c); len(state.Blocks) != 0 || len(state.Affinities["n1"]) != 0 {
		t.Errorf("after releasing %s there are %+v, not nothing", cidr, state)
	}
}

func TestIPAMConfigIsCalicos(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	if err := s.SetIPAMConfig(ctx, ipam.IPAMConfig{}); err == nil {
		t.Error("a configuration that Calico rejects is no error")
	}
	err := s.SetIPAMConfig(ctx, ipam.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 3})
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.Get(ctx, testcluster.CRDv1.Resource("ipamconfigs"), "", "default")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": int64(3)}
	if diff := cmp.Diff(want, config.Object["spec"]); diff != "" {
		t.Errorf("specification (-want +got):\n%s", diff)
	}
}

// comparePrefixes lets go-cmp compare prefixes.
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
