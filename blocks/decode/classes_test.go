package decode

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/blocks/alias"
)

// TestTextsWithNames: names within strings are replaced. The rest stays, so that the
// strings keep their meaning.
func TestTextsWithNames(t *testing.T) {
	for _, c := range []struct {
		class    class
		in, want string
	}{
		{classOwner, "host:old-1", "host:node-1"}, {classOwner, "virtual:load-balancer", "virtual:load-balancer"}, {classOwner, "", ""},
		{classOwner, "old-1", "node-1"}, {classOwner, "ipip:old-1", "word-1:node-1"}, {classNode, "load-balancer", "load-balancer"},
		{classHandle, "vxlan-v6-tunnel-addr-old-1", "vxlan-v6-tunnel-addr-node-1"}, {classHandle, "k8s-pod-network.abc", "k8s-pod-network.sandbox-1"},
		{classHandle, "acme.net.ABC", "network-1.SANDBOX-1"}, {classHandle, "Windows-Reserved-IPAM-Handle", "Windows-Reserved-IPAM-Handle"},
		{classHandle, "k8s-pod-network.vmi.shop.db.main", "k8s-pod-network.vmi.namespace-1.vm-1"}, {classHandle, "acme.net.vmi.shop.db", "network-1.vmi.namespace-1.vm-1"},
		{classHandle, "net1.vmi._0123abc", "network-1.vmi._handle-1"}, {classHandle, "net1.vmi.acme", "network-1.vmi.handle-1"},
		{classNetworks, `[{"name": "acme/net1", "interface": "net1", "ips": ["10.9.0.1/24"]}, {"ips": ["acme"]}]`, `[{"name":"namespace-1/network-1","ips":["10.9.0.1"]},{"ips":[]},{"ips":["?"]}]`},
		{classNetworks, `[{"name": "acme/net1"}, {"name": "acme", "default": true}]`, `[{"name":"namespace-1/network-2","ips":[]},{"name":"network-1","default":true,"ips":[]}]`}, {classNetworks, "acme", `[{"ips":["?"]}]`},
		{classAsks, "net1@eth1, acme/net1", "network-1,namespace-1/network-1"}, {classAsks, `[{"name": "net1", "namespace": "acme"}]`, "namespace-1/network-1"}, {classAsks, "[", ""}, {classAsks, "", ""},
		{classOwnerVersion, "kubevirt.io/v1", "kubevirt.io/v1"}, {classOwnerVersion, "kubevirt.io/acme", "?"}, {classOwnerVersion, "acme.example/v1", "?"},
		{classHandle, "lb-0815", "lb-handle-1"}, {classHandle, "odd.", "handle-1"}, {classSandbox, "abc", "sandbox-1"},
		{classCIDRName, "10-0-0-0-26", "10-0-0-0-26"}, {classCIDRName, "fd00--40-122", "fd00--40-122"}, {classCIDRName, "acme", "block-1"},
		{classPoolList, `["gold","10.0.0.0/16"]`, `["pool-1","10.0.0.0/16"]`}, {classPoolList, "gold", "?"}, {classAddressJSON, `["10.0.0.9","x"]`, `["10.0.0.9","?"]`}, {classAddressJSON, "10.0.0.9", "?"},
		{classAddresses, "10.0.0.1/32,fd00::1", "10.0.0.1/32,fd00::1"}, {classAddresses, "acme, 10.0.0.1", "?, 10.0.0.1"},
		{classEndpoint, "[fd00::1]:179", "[2001:db8::64]:179"}, {classEndpoint, "router.acme", "?"}, {classEndpoint, "10.9.0.1", "203.0.113.100"},
		{classNodeAddress, "10.9.0.1/16", "203.0.113.100/16"}, {classNodeAddress, "acme", "?"}, {classPoolCIDR, "10.0.0.0/16", "10.0.0.0/16"},
		{classLabelText, `{"rack":"r","kubernetes.io/os":"linux"}`, `{"kubernetes.io/os":"linux","label-1":"value-1"}`}, {classLabelText, "[]", "?"},
		{classTime, "2026-01-01 12:00:00.5 +0000 UTC m=+1", "2026-01-01 12:00:00.5 +0000 UTC m=+1"}, {classTime, "yesterday", "?"},
		{classWord, "Running", "Running"}, {classWord, "4711", "4711"}, {classWord, "acme", "word-1"}, {classDuration, "5m", "5m"}, {classDuration, "x", "?"},
		{classVersion, "v3.31.0", "v3.31.0"}, {classVersion, "acme", "?"}, {classAS, "1.10", "4200000001"}, {classAS, "64512", "64512"}, {classAS, "x", "?"}, {classNumber, "26", "?"},
		{classQuantity, "1k", "1k"}, {classQuantity, "x", "?"}, {classBool, "true", "true"}, {classBool, "x", "?"},
		{classDefault, "default", "default"}, {classDefault, "node.x", "configuration-1"}, {classTaint, "node.kubernetes.io/not-ready", "node.kubernetes.io/not-ready"},
		{classTaint, "acme", "taint-1"}, {classGUID, "123", "cluster-1"}, {classUID, "abc", "00000000-0000-0000-0000-000000000001"}, {classStub, "x", "?"},
		{classPodRef, "shop/db-0", "namespace-1/pod-1"}, {classPodRef, "acme", "?"}, {classPodRef, "", ""}, {classController, "calico-node", "calico-node"}, {classController, "rke2-canal", "rke2-canal"}, {classController, "calico-node-acme", "calico-node-controller-1"}, {classController, "kube-flannel-ds-acme", "kube-flannel-controller-1"}, {classController, "acme", "controller-1"},
		{classRangeName, "10.9.0.0-24", "10.9.0.0-24"}, {classRangeName, "acme-n1-10.9.0.0-24", "network-1-10.9.0.0-24"}, {classRangeName, "acme-net-fd00---64", "network-1-fd00---64"},
		{classRangeName, "acme", "network-1"}, {classAddressName, "acme-net-10.9.0.5", "network-1-10.9.0.5"}, {classAddressName, "fd00--1", "fd00--1"}, {classAddressName, "acme", "network-1"},
		{classAttachment, `{"name":"acme","type":"ipvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24","network_name":"acme","gateway":"10.9.0.1"}}`,
			`{"type":"macvlan","ipam":{"type":"whereabouts","network_name":"network-1","range":"10.9.0.0/24"}}`},
		{classAttachment, `{"type":"ipvlan","ipam":{"type":"host-local","dataDir":"/acme"}}`, `{"type":"macvlan","ipam":{"type":"host-local"}}`}, {classAttachment, `{"type":"acme"}`, "{}"},
		{classAttachment, `{"plugins":[{"type":"macvlan","ipam":{"type":"static","addresses":["acme"]}},{"type":"tuning"}]}`, `{"type":"macvlan","ipam":{"type":"static"}}`},
		{classAttachment, `{"type":"bridge","ipam":{"type":"host-local","dataDir":"/acme"}}`, `{"ipam":{"type":"other"}}`}, {classAttachment, `{"type":"acme"}`, "{}"},
		{classNodeSelector, "rack is a", "?"}, {classNodeSelector, "", ""},
	} {
		n := alias.New()
		anonymize(c.class, n, "", c.in)
		n.EndCollecting()
		if got := anonymize(c.class, n, "", c.in); got != c.want {
			t.Errorf("role %d: %q became %q, want %q", c.class, c.in, got, c.want)
		}
	}
	n := alias.New()
	n.Claimant = "Old.1"
	for _, s := range []string{"old.1-10-0-0-0-26", "old.1-acme"} {
		anonymize(classAffinityName, n, "", s)
	}
	n.EndCollecting()
	if got := anonymize(classAffinityName, n, "", "old.1-10-0-0-0-26"); got != "node-1-10-0-0-0-26" {
		t.Errorf("an affinity's name became %q", got)
	}
	if got := anonymize(classAffinityName, n, "", "old.1-acme"); got != "affinity-1" {
		t.Errorf("an affinity's odd name became %q", got)
	}
}

// TestAddressesOfNodesAreReplaced: replaced addresses keep their order and their common
// subnets of any length. Addresses of pools stay, and a pod with a node's address gets the
// node's new address.
func TestAddressesOfNodesAreReplaced(t *testing.T) {
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, 2))
	pool := netip.MustParsePrefix("203.0.113.0/25") // where the replacements would lie
	var private []netip.Addr
	for range 60 {
		private = append(private, netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), byte(random.IntN(4)), byte(random.IntN(256))}))
	}
	inPool := netip.MustParseAddr("203.0.113.7")
	n := alias.New()
	round := func(a netip.Addr) (node, peer, pod, status string) {
		return anonymize(classNodeAddress, n, "", a.String()+"/22"), anonymize(classEndpoint, n, "", a.String()+":179"),
			anonymize(classAddresses, n, "", a.String()+"/32"), anonymize(classNetworks, n, "", `[{"ips":["`+a.String()+`"]}]`)
	}
	anonymize(classPoolCIDR, n, "", pool.String())
	for _, a := range append(private, inPool) {
		round(a)
	}
	n.EndCollecting()
	if node, _, _, _ := round(inPool); node != inPool.String()+"/22" {
		t.Errorf("seed %d: a node's address in a pool became %s", seed, node)
	}
	replaced := make([]netip.Addr, len(private))
	for i, a := range private {
		node, peer, pod, status := round(a)
		p := netip.MustParsePrefix(node)
		replaced[i] = p.Addr()
		want := []string{replaced[i].String() + ":179", replaced[i].String() + "/32", `[{"ips":["` + replaced[i].String() + `"]}]`}
		if got := []string{peer, pod, status}; p.Bits() != 22 || !slices.Equal(got, want) || pool.Contains(replaced[i]) || a.String() != n.Table()["address"][replaced[i].String()] {
			t.Errorf("seed %d: %s became %s, and %v elsewhere", seed, a, node, got)
		}
		for j, b := range private[:i] {
			for bits := 8; bits <= 32; bits++ {
				before, after := netip.PrefixFrom(a, bits).Masked().Contains(b), netip.PrefixFrom(replaced[i], bits).Masked().Contains(replaced[j])
				if before != after || a.Compare(b) != replaced[i].Compare(replaced[j]) {
					t.Fatalf("seed %d: %s and %s, for /%d, became %s and %s", seed, a, b, bits, replaced[i], replaced[j])
				}
			}
		}
	}
}

// TestOtherSpellingsOfAddresses: an address is replaced in any spelling.
func TestOtherSpellingsOfAddresses(t *testing.T) {
	n := alias.New()
	anonymize(classNodeAddress, n, "", "fd00:7::a")
	anonymize(classNodeAddress, n, "", "172.16.0.9")
	anonymize(classEndpoint, n, "", "[fd00:7::a%eth0]:179")
	n.EndCollecting()
	six, four := anonymize(classNodeAddress, n, "", "fd00:7::a"), anonymize(classNodeAddress, n, "", "172.16.0.9")
	for _, c := range []struct{ class, text, want string }{
		{"list", "FD00:7:0::A", six}, {"list", " fd00:7::000a/128", six + "/128"}, {"list", "::ffff:172.16.0.9, FD00:7::A", four + "," + six},
		{"list", "::ffff:172.16.0.9/128", four + "/32"}, {"list", "fd00:7::a/64", "fd00:7::a/64"},
		{"endpoint", "[fd00:7::a%eth0]:179", "[" + six + "]:179"}, {"endpoint", "[FD00:7::A]:179", "[" + six + "]:179"},
	} {
		r := classAddresses
		if c.class == "endpoint" {
			r = classEndpoint
		}
		if got := anonymize(r, n, "", c.text); got != c.want || six == "fd00:7::a" {
			t.Errorf("%s became %q, want %q", c.text, got, c.want)
		}
	}
}
