package errortext

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ids(found []Match) (out []string) {
	for _, m := range found {
		out = append(out, m.ID)
	}
	return out
}

// TestFindInWhatPeoplePaste: a message is found in the output of kubectl, container runtimes and
// logs, together with the objects that they name.
func TestFindInWhatPeoplePaste(t *testing.T) {
	pod, node := []Pod{{"shop", "web-0"}}, []string{"worker-1"}
	for _, c := range []struct {
		name, text string
		want       []string
		names      Names
	}{
		{
			"kubectl describe pod", `Name:             web-0
Namespace:        shop
Priority:         0
Node:             worker-1/192.168.0.11
Start Time:       Sat, 21 Nov 2026 03:06:59 +0000
IP:
Events:
  Type     Reason                  Age               From               Message
  ----     ------                  ----              ----               -------
  Normal   Scheduled               10m               default-scheduler  Successfully assigned shop/web-0 to worker-1
  Warning  FailedCreatePodSandBox  10m               kubelet            Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "0c1e": plugin type="calico" failed (add): failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.64.75.0/24 10.65.0.0/24]
  Normal   SandboxChanged          9m (x12 over 10m)  kubelet           Pod sandbox changed, it will be killed and re-created.`,
			[]string{"no-address-left"},
			Names{Pods: pod, Nodes: node, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.64.75.0/24"), netip.MustParsePrefix("10.65.0.0/24")}},
		},
		{
			"the kubelet's log", `E1121 03:06:59.123456    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"CreatePodSandbox\" for \"web-0_shop(3f1c-9a)\" with CreatePodSandboxError: \"Failed to create sandbox for pod \\\"web-0_shop(3f1c-9a)\\\": rpc error: code = Unknown desc = failed to setup network for sandbox \\\"0c1e\\\": plugin type=\\\"calico\\\" failed (add): error parsing pool \\\"gold\\\": invalid CIDR address: gold\"" pod="shop/web-0" podUID="3f1c"`,
			[]string{"unknown-pool"}, Names{Pods: pod, Pools: []string{"gold"}},
		},
		{
			"an event in JSON", `{"kind":"Event","message":"(combined from similar events): Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0c1e\": plugin type=\"calico\" failed (add): cannot allocate new block\ndue to per host block limit"}`,
			[]string{"block-limit"}, Names{},
		},
		{
			"dockershim", `Failed create pod sandbox: rpc error: code = Unknown desc = failed to set up sandbox container "0c1e" network for pod "web-0": networkPlugin cni failed to set up pod "web-0_shop" network: the given pool (10.65.0.0/24) does not exist, or is not enabled`,
			[]string{"pool-not-enabled"}, Names{Pods: pod, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}},
		},
		{
			"CRI-O", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create pod network sandbox k8s_web-0_shop_3f1c9a00-1111-2222-3333-444455556666_0(0c1e): error adding pod shop_web-0 to CNI network "k8s-pod-network": plugin type="calico" failed (add): error getting IP from IPAM: resource already exists: 10.64.75.9`,
			[]string{"address-taken"}, Names{Pods: pod, Addresses: []netip.Addr{netip.MustParseAddr("10.64.75.9")}},
		},
		{
			"the CNI plugin's log", `2026-11-21 03:06:59.120 [ERROR][4242] cni-plugin/plugin.go 580: Final result of CNI ADD was an error. error=no configured Calico pools for node worker-1`,
			[]string{"no-pool-for-node"}, Names{Nodes: node},
		},
		{
			"calico-ipam's log", `2026-11-21 03:06:59.120 [WARNING][4242] ipam/ipam.go 780: Unable to allocate a new IPAM block; host already has 20 blocks but blocks per host limit is 20 ContainerID="0c1e" HandleID="k8s-pod-network.0c1e000000000000000000000000000000000000000000000000000000000000" Workload="worker--1-k8s-web--0-eth0"`,
			[]string{"block-limit"}, Names{Pods: []Pod{{"", "web-0"}}, Nodes: node, Handles: []string{"k8s-pod-network.0c1e000000000000000000000000000000000000000000000000000000000000"}},
		},
		{
			"an event without its reason", `Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded`,
			[]string{"sandbox"}, Names{},
		},
		{
			"IPv6", `failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses; No IPs available in pools: [fd00:10:64::/112]`,
			[]string{"no-address-left"}, Names{CIDRs: []netip.Prefix{netip.MustParsePrefix("fd00:10:64::/112")}},
		},
		{
			"calico-node's log (canonical/microk8s#3804)", `[WARNING][9] startup/autodetection_methods.go 140: Unable to auto-detect IPv4 address by connecting to 2a01:4f8:242:3ce9::2: dial udp4: address 2a01:4f8:242:3ce9::2: no suitable address found`,
			[]string{"no-node-address"}, Names{},
		},
		{
			"the log of Tigera's operator (tigera/operator#4783)", `{"level":"info","ts":"2026-05-07T08:48:57Z","logger":"controller_ippool","msg":"Pool needs to be deleted","Request.Namespace":"","Request.Name":"default-ipv6-ippool","cidr":"fd20:5213:94f6:1e9:1f::/96"}`,
			[]string{"pool-replaced"}, Names{CIDRs: []netip.Prefix{netip.MustParsePrefix("fd20:5213:94f6:1e9:1f::/96")}},
		},
		{"in YAML", `message: 'global strict affinity should not be false for Windows node, ''web-0'''`, []string{"strict-affinity-windows"}, Names{}},
		{"two causes", "Calico is currently not ready to process requests\n…\nNo more free affine blocks and strict affinity enabled", []string{"not-ready", "no-affine-block"}, Names{}},
		{"the message alone announces", "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses", []string{"partly-assigned"}, Names{}},
		{"nothing known", "pod web-0 is running on worker-1 with 10.64.75.9", nil, Names{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, names := Find(c.text)
			if got := ids(found); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if diff := cmp.Diff(c.names, names, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("names (-want +found):\n%s", diff)
			}
		})
	}
}

// TestMessages: each message is found by each of its texts, and its parts are written as users read
// them.
func TestMessages(t *testing.T) {
	seen := map[string]bool{}
	samples := map[string]string{
		"n": "3", "node": "worker-1", "pool": "pods-v4", "namespace": "shop", "cidr": "10.0.0.0/26", "cidrs": "10.0.0.0/24", "ip": "10.0.0.5", "any": "x",
	}
	for i := range All {
		m := &All[i]
		if m.ID == "" || seen[m.ID] || m.By == "" || len(m.Texts) == 0 {
			t.Errorf("%q: no or no unique ID, no component or no text", m.ID)
		}
		seen[m.ID] = true
		for _, s := range []string{m.Means, m.Do} {
			if !strings.HasSuffix(s, ".") || strings.Contains(s, ". ") {
				t.Errorf("%s: not one sentence: %q", m.ID, s)
			}
		}
		for _, text := range m.Texts {
			sample := placeholder.ReplaceAllStringFunc(text, func(p string) string { return samples[strings.Trim(p, "{}")] })
			if found, _ := Find("E1121 " + sample + ", retrying"); !slices.Contains(ids(found), m.ID) {
				t.Errorf("%s is not found in %q: %q", m.ID, sample, ids(found))
			}
		}
	}
}
