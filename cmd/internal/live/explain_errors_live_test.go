package live_test

import (
	"net/netip"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// realErrors are states in which Calico's own programs refuse an address.
var realErrors = []struct {
	name string
	// state makes the state. The nodes n1 and n2, a pool of four addresses in two blocks and the
	// namespace shop exist.
	state func(*testing.T, *seeding.Seeder)
	// plugin asks Calico's CNI plugin on n2 for an address of pod shop/late, and the error is taken
	// from kubectl describe. Otherwise ask returns the error.
	plugin testcluster.CNIAdd
	ask    func(*testing.T, *seeding.Seeder) string
	// want are required parts of the explanation; not is a forbidden one.
	want []string
	not  string
}{
	{
		name: "pool exhausted", state: full,
		want: []string{"ERROR no-address-left", "Blocks left to claim: 0 of 2", "pod shop/late: The pod waits for an address on n2", "pool/exhausted pool pods", "node n2 has no IPv4 block", "add a pool like"},
	},
	{
		name: "strict affinity",
		state: func(t *testing.T, s *seeding.Seeder) {
			full(t, s)
			configure(t, s, map[string]any{"strictAffinity": true})
		},
		want: []string{"ERROR no-affine-block", "node n2 has no IPv4 block", "pool/no-free-blocks pool pods", "add a pool like"},
	},
	{
		name: "block limit",
		state: func(t *testing.T, s *seeding.Seeder) {
			configure(t, s, map[string]any{"strictAffinity": true, "maxBlocksPerHost": int64(1)})
			pods(t, s, "n1", "a", "b")
			pods(t, s, "n2", "c", "d")
		},
		want: []string{"ERROR block-limit", "node/block-limit node n2 has as many IPv4 blocks as it may (1 of 1)"}, not: "node n1 has as many",
	},
	{
		name: "no pool for the node",
		state: func(t *testing.T, s *seeding.Seeder) {
			edit(t, s, "ippools", "pods", map[string]any{"nodeSelector": "kubernetes.io/hostname == 'n1'"})
		},
		want: []string{"ERROR no-pool-for-node", "node n2: ", "no pool selects"},
	},
	{
		name:   "unknown pool",
		plugin: testcluster.CNIAdd{Pools: []string{"gold"}},
		want:   []string{"ERROR unknown-pool", "pool gold: no such pool", "cni.projectcalico.org/ipv4pools"},
	},
	{
		name: "disabled pool",
		state: func(t *testing.T, s *seeding.Seeder) {
			pods(t, s, "n1", "a")
			must(t, s.Pool(t.Context(), "other", apiv3.IPPoolSpec{CIDR: "10.64.76.0/30", BlockSize: 31}))
			edit(t, s, "ippools", "pods", map[string]any{"disabled": true})
		},
		plugin: testcluster.CNIAdd{Pools: []string{"pods"}},
		want:   []string{"ERROR pool-not-enabled", "pod shop/late: The pod waits for an address on n2: the CNI configuration (ipv4_pools, ipv6_pools) names pool pods, which is disabled", "pool pods: The pool is disabled", "pool/disabled-in-use disabled pool pods"},
	},
	{
		name: "no qualified pool",
		state: func(t *testing.T, s *seeding.Seeder) {
			pods(t, s, "n1", "a")
			edit(t, s, "ippools", "pods", map[string]any{"disabled": true})
		},
		want: []string{"ERROR no-qualified-pool", "pool/disabled-in-use disabled pool pods"},
	},
	{
		name: "address taken",
		state: func(t *testing.T, s *seeding.Seeder) {
			pods(t, s, "n1", "a")
		},
		ask: func(t *testing.T, s *seeding.Seeder) string {
			addr := first(t, s)
			must(t, s.DeletePod(t.Context(), "shop", "a", false))
			return askFor(t, s, "n1", addr)
		},
		want: []string{"ERROR address-taken", "ip/leaked", "address 10.64.75."},
	},
	{
		name: "address of another node's block",
		state: func(t *testing.T, s *seeding.Seeder) {
			configure(t, s, map[string]any{"strictAffinity": true})
			pods(t, s, "n1", "a")
		},
		ask: func(t *testing.T, s *seeding.Seeder) string {
			addr := blockOf(t, s).Addr()
			if addr == first(t, s) {
				addr = addr.Next()
			}
			return askFor(t, s, "n2", addr)
		},
		want: []string{"ERROR block-of-other-node"},
	},
	{
		name: "address outside the pools",
		ask: func(t *testing.T, s *seeding.Seeder) string {
			return askFor(t, s, "n2", netip.MustParseAddr("10.99.0.1"))
		},
		want: []string{"ERROR address-outside-pools"},
	},
	{
		name:  "locked datastore",
		state: func(t *testing.T, s *seeding.Seeder) { must(t, s.LockDatastore(t.Context(), true)) },
		want:  []string{"ERROR not-ready", "config/datastore-locked", "calicoctl datastore migrate unlock"},
	},
	{
		name: "Windows without strict affinity",
		state: func(t *testing.T, s *seeding.Seeder) {
			must(t, s.Node(t.Context(), seeding.Node{Name: "win", OS: "windows"}))
			must(t, s.Pool(t.Context(), "large", apiv3.IPPoolSpec{CIDR: "10.64.77.0/24", BlockSize: 26}))
		},
		ask:  func(t *testing.T, s *seeding.Seeder) string { return text(t, s.OnWindows(t.Context(), "win")) },
		want: []string{"ERROR strict-affinity-windows", "config/strict-affinity", "--strict-affinity=true"},
	},
	{
		name:   "refused rights",
		plugin: testcluster.CNIAdd{Kubeconfig: "nobody"},
		want:   []string{"ERROR refused-rights", "ClusterRole calico-cni-plugin"},
	},
	{
		name:   "calico-node has not started",
		plugin: testcluster.CNIAdd{NodenameFile: "/nonexistent/nodename"},
		want:   []string{"ERROR node-name", "calico-node has not started on this node"},
	},
	{
		name:   "wrong node name",
		plugin: testcluster.CNIAdd{Node: "n9"},
		want:   []string{"ERROR node-missing", "/var/lib/calico/nodename"},
	},
	{
		name: "deleted block under a node",
		state: func(t *testing.T, s *seeding.Seeder) {
			pods(t, s, "n1", "a", "b")
			pods(t, s, "n2", "c") // without any block, Calico may keep its data elsewhere
			name := strings.NewReplacer(".", "-", "/", "-").Replace(blockOf(t, s).String())
			must(t, s.Cluster.Delete(t.Context(), testcluster.CRDv1.Resource("ipamblocks"), "", name))
		},
		ask: func(t *testing.T, s *seeding.Seeder) string {
			found, err := s.Cluster.Calicoctl(t.Context(), "ipam", "check", "--show-problem-ips")
			must(t, err)
			return found
		},
		want: []string{"ERROR check-unallocated", "affinity/no-block", "ip/unallocated", "--unrecorded-ips"},
	},
	{
		name: "release of an address that is free",
		ask: func(t *testing.T, s *seeding.Seeder) string {
			_, err := s.Cluster.Calicoctl(t.Context(), "ipam", "release", "--ip=10.64.75.1")
			return text(t, err)
		},
		want: []string{"ERROR not-assigned", "address 10.64.75.1: "},
	},
}

// TestExplainRealErrors: each error of Calico's own CNI plugin and IPAM client, pasted in the
// kubelet's words, leads to the objects that cause it and to the remedy.
func TestExplainRealErrors(t *testing.T) {
	for _, c := range testenv.Sample(t, (len(realErrors)+1)/2, realErrors) {
		t.Run(c.name, func(t *testing.T) {
			cluster := testcluster.Shared(t, testcluster.Options{})
			s := twoNodes(t, cluster)
			if c.state != nil {
				c.state(t, s)
			}
			var pasted string
			if c.ask != nil {
				pasted = c.ask(t, s)
			} else {
				pasted = failingPod(t, s, c.plugin)
			}
			t.Logf("pasted:\n%s", pasted)
			got := clitest.Run(t, "explain", pasted, "--kubeconfig", cluster.KubeconfigPath())
			if got.Code != exit.CodeOK {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
			flat := strings.Join(strings.Fields(got.Stdout), " ")
			for _, want := range c.want {
				if !strings.Contains(flat, want) {
					t.Errorf("the explanation lacks %q", want)
				}
			}
			if c.not != "" && strings.Contains(flat, c.not) {
				t.Errorf("the explanation has %q", c.not)
			}
			if t.Failed() {
				t.Logf("explained:\n%s", got.Stdout)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// text returns the text of an expected error.
func text(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("Calico refused nothing")
	}
	return err.Error()
}

// askFor creates a pod that asks for an address by name, and returns Calico's error.
func askFor(t *testing.T, s *seeding.Seeder, node string, addr netip.Addr) string {
	t.Helper()
	_, err := s.Pod(t.Context(), seeding.Pod{
		Namespace: "shop", Name: "fixed", Node: node, Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + addr.String() + `"]`},
	})
	return text(t, err)
}

func twoNodes(t *testing.T, c *testcluster.Cluster) *seeding.Seeder {
	t.Helper()
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(t.Context()))
	must(t, s.Pool(t.Context(), "pods", apiv3.IPPoolSpec{CIDR: "10.64.75.0/30", BlockSize: 31}))
	must(t, s.Namespace(t.Context(), "shop", nil, nil))
	must(t, s.Node(t.Context(), seeding.Node{Name: "n1"}))
	must(t, s.Node(t.Context(), seeding.Node{Name: "n2"}))
	configure(t, s, map[string]any{"strictAffinity": false, "autoAllocateBlocks": true})
	return s
}

// configure changes the IPAM configuration. Calico creates it when it first reads it.
func configure(t *testing.T, s *seeding.Seeder, fields map[string]any) {
	t.Helper()
	if _, err := s.Calico.IPAM().GetIPAMConfig(t.Context()); err != nil {
		t.Fatal(err)
	}
	edit(t, s, "ipamconfigs", "default", fields)
}

func edit(t *testing.T, s *seeding.Seeder, resource, name string, fields map[string]any) {
	t.Helper()
	must(t, s.Cluster.Edit(t.Context(), testcluster.CRDv1.Resource(resource), "", name, func(object map[string]any) {
		for k, v := range fields {
			object["spec"].(map[string]any)[k] = v
		}
	}))
}

func pods(t *testing.T, s *seeding.Seeder, node string, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Pod(t.Context(), seeding.Pod{Namespace: "shop", Name: name, Node: node})
		must(t, err)
	}
}

// full fills the pool with pods of n1.
func full(t *testing.T, s *seeding.Seeder) {
	t.Helper()
	pods(t, s, "n1", "a", "b", "c", "d")
}

// failingPod creates the pod shop/late on n2, makes the CNI plugin fail, and returns the output of
// kubectl describe.
func failingPod(t *testing.T, s *seeding.Seeder, a testcluster.CNIAdd) string {
	t.Helper()
	_, err := s.Pod(t.Context(), seeding.Pod{Namespace: "shop", Name: "late", Node: "n2", Waiting: true})
	must(t, err)
	a.Namespace, a.Pod = "shop", "late"
	if a.Node == "" {
		a.Node = "n2"
	}
	if a.Kubeconfig != "" {
		a.Kubeconfig, err = s.Cluster.UserKubeconfig(a.Kubeconfig)
		must(t, err)
	}
	_, err = s.Cluster.FailCNIAdd(t.Context(), a)
	must(t, err)
	described, err := s.Cluster.Kubectl(t.Context(), "describe", "pod", "-n", "shop", "late")
	must(t, err)
	return described
}

// first returns an allocated address.
func first(t *testing.T, s *seeding.Seeder) netip.Addr {
	t.Helper()
	p, err := s.Cluster.Kube.CoreV1().Pods("shop").Get(t.Context(), "a", metav1.GetOptions{})
	must(t, err)
	return netip.MustParseAddr(p.Status.PodIP)
}

// blockOf returns the CIDR of the block that holds the first address.
func blockOf(t *testing.T, s *seeding.Seeder) netip.Prefix {
	t.Helper()
	return netip.PrefixFrom(first(t, s), 31).Masked()
}
