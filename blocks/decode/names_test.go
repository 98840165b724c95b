package decode

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestTextsWithNames: names within texts are replaced, and what tells nothing
// stays, so that it goes on meaning the same.
func TestTextsWithNames(t *testing.T) {
	for _, c := range []struct {
		role     role
		in, want string
	}{
		{roleOwner, "host:old-1", "host:node-1"}, {roleOwner, "virtual:load-balancer", "virtual:load-balancer"}, {roleOwner, "", ""},
		{roleOwner, "old-1", "node-1"}, {roleOwner, "ipip:old-1", "word-1:node-1"}, {roleNode, "load-balancer", "load-balancer"},
		{roleHandle, "vxlan-v6-tunnel-addr-old-1", "vxlan-v6-tunnel-addr-node-1"}, {roleHandle, "k8s-pod-network.abc", "k8s-pod-network.sandbox-1"},
		{roleHandle, "acme.net.ABC", "network-1.Sandbox-1"}, {roleHandle, "Windows-Reserved-IPAM-Handle", "Windows-Reserved-IPAM-Handle"},
		{roleHandle, "k8s-pod-network.vmi.shop.db.main", "k8s-pod-network.vmi.namespace-1.vm-1"}, {roleHandle, "acme.net.vmi.shop.db", "network-1.vmi.namespace-1.vm-1"},
		{roleHandle, "net1.vmi._0123abc", "network-1.vmi._handle-1"}, {roleHandle, "net1.vmi.acme", "network-1.vmi.handle-1"},
		{roleNetworks, `[{"name": "acme/net1", "interface": "net1", "ips": ["10.9.0.1/24"]}, {"ips": ["acme"]}]`, `[{"name":"namespace-1/network-1","ips":["10.9.0.1"]},{"ips":[]},{"ips":["?"]}]`},
		{roleNetworks, `[{"name": "acme/net1"}, {"name": "acme", "default": true}]`, `[{"name":"namespace-1/network-2","ips":[]},{"name":"network-1","default":true,"ips":[]}]`}, {roleNetworks, "acme", `[{"ips":["?"]}]`},
		{roleOwnerVersion, "kubevirt.io/v1", "kubevirt.io/v1"}, {roleOwnerVersion, "kubevirt.io/acme", "?"}, {roleOwnerVersion, "acme.example/v1", "?"},
		{roleHandle, "lb-0815", "lb-handle-1"}, {roleHandle, "odd.", "handle-1"}, {roleSandbox, "abc", "sandbox-1"},
		{roleCIDRName, "10-0-0-0-26", "10-0-0-0-26"}, {roleCIDRName, "fd00--40-122", "fd00--40-122"}, {roleCIDRName, "acme", "block-1"},
		{rolePoolList, `["gold","10.0.0.0/16"]`, `["pool-1","10.0.0.0/16"]`}, {rolePoolList, "gold", "?"},
		{roleAddresses, "10.0.0.1/32,fd00::1", "10.0.0.1/32,fd00::1"}, {roleAddresses, "acme, 10.0.0.1", "?, 10.0.0.1"},
		{roleEndpoint, "[fd00::1]:179", "[2001:db8::64]:179"}, {roleEndpoint, "router.acme", "?"}, {roleEndpoint, "10.9.0.1", "203.0.113.100"},
		{roleNodeAddress, "10.9.0.1/16", "203.0.113.100/16"}, {roleNodeAddress, "acme", "?"}, {rolePoolCIDR, "10.0.0.0/16", "10.0.0.0/16"},
		{roleLabelText, `{"rack":"r","kubernetes.io/os":"linux"}`, `{"kubernetes.io/os":"linux","label-1":"value-1"}`}, {roleLabelText, "[]", "?"},
		{roleTime, "2026-01-01 12:00:00.5 +0000 UTC m=+1", "2026-01-01 12:00:00.5 +0000 UTC m=+1"}, {roleTime, "yesterday", "?"},
		{roleWord, "Running", "Running"}, {roleWord, "4711", "4711"}, {roleWord, "acme", "word-1"}, {roleDuration, "5m", "5m"}, {roleDuration, "x", "?"},
		{roleVersion, "v3.31.0", "v3.31.0"}, {roleVersion, "acme", "?"}, {roleAS, "1.10", "4200000001"}, {roleAS, "64512", "64512"}, {roleAS, "x", "?"}, {roleNumber, "26", "?"},
		{roleQuantity, "1k", "1k"}, {roleQuantity, "x", "?"}, {roleBool, "true", "true"}, {roleBool, "x", "?"},
		{roleDefault, "default", "default"}, {roleDefault, "node.x", "?"}, {roleTaint, "node.kubernetes.io/not-ready", "node.kubernetes.io/not-ready"},
		{roleTaint, "acme", "taint-1"}, {roleGUID, "123", "cluster-1"}, {roleUID, "abc", "00000000-0000-0000-0000-000000000001"}, {roleStub, "x", "?"},
		{rolePodRef, "shop/db-0", "namespace-1/pod-1"}, {rolePodRef, "acme", "?"}, {rolePodRef, "", ""},
		{roleRangeName, "10.9.0.0-24", "10.9.0.0-24"}, {roleRangeName, "acme-n1-10.9.0.0-24", "network-1-10.9.0.0-24"}, {roleRangeName, "acme-net-fd00---64", "network-1-fd00---64"},
		{roleRangeName, "acme", "network-1"}, {roleAddressName, "acme-net-10.9.0.5", "network-1-10.9.0.5"}, {roleAddressName, "fd00--1", "fd00--1"}, {roleAddressName, "acme", "network-1"},
		{roleAttachment, `{"name":"acme","type":"ipvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24","network_name":"acme","gateway":"10.9.0.1"}}`,
			`{"type":"macvlan","ipam":{"type":"whereabouts","network_name":"network-1","range":"10.9.0.0/24"}}`},
		{roleAttachment, `{"type":"ipvlan","ipam":{"type":"host-local","dataDir":"/acme"}}`, `{"ipam":{"type":"other"}}`}, {roleAttachment, `{"type":"acme"}`, "{}"},
		{roleNodeSelector, "rack is a", "?"}, {roleNodeSelector, "", ""},
	} {
		n := NewAnonymizer()
		n.text(c.role, "", c.in)
		n.EndCollecting()
		if got := n.text(c.role, "", c.in); got != c.want {
			t.Errorf("role %d: %q became %q, want %q", c.role, c.in, got, c.want)
		}
	}
	n := NewAnonymizer()
	n.Claimant = "Old.1"
	for _, s := range []string{"old.1-10-0-0-0-26", "old.1-acme"} {
		n.text(roleAffinityName, "", s)
	}
	n.EndCollecting()
	if got := n.text(roleAffinityName, "", "old.1-10-0-0-0-26"); got != "node-1-10-0-0-0-26" {
		t.Errorf("an affinity's name became %q", got)
	}
	if got := n.text(roleAffinityName, "", "old.1-acme"); got != "affinity-1" {
		t.Errorf("an affinity's odd name became %q", got)
	}
}

// TestAddressesOfNodesAreReplaced: two addresses are in one subnet after as before,
// whatever its length, and sort as before; those of a pool stay, and a pod with a
// node's address goes on having it.
func TestAddressesOfNodesAreReplaced(t *testing.T) {
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, 2))
	pool := netip.MustParsePrefix("203.0.113.0/25") // where the replacements would lie
	var private []netip.Addr
	for range 60 {
		private = append(private, netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), byte(random.IntN(4)), byte(random.IntN(256))}))
	}
	inPool := netip.MustParseAddr("203.0.113.7")
	n := NewAnonymizer()
	round := func(a netip.Addr) (node, peer, pod, status string) {
		return n.text(roleNodeAddress, "", a.String()+"/22"), n.text(roleEndpoint, "", a.String()+":179"),
			n.text(roleAddresses, "", a.String()+"/32"), n.text(roleNetworks, "", `[{"ips":["`+a.String()+`"]}]`)
	}
	n.text(rolePoolCIDR, "", pool.String())
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

// TestOtherSpellingsOfAddresses: an address is replaced however it is written.
func TestOtherSpellingsOfAddresses(t *testing.T) {
	n := NewAnonymizer()
	n.text(roleNodeAddress, "", "fd00:7::a")
	n.text(roleNodeAddress, "", "172.16.0.9")
	n.text(roleEndpoint, "", "[fd00:7::a%eth0]:179")
	n.EndCollecting()
	six, four := n.text(roleNodeAddress, "", "fd00:7::a"), n.text(roleNodeAddress, "", "172.16.0.9")
	for _, c := range []struct{ role, text, want string }{
		{"list", "FD00:7:0::A", six}, {"list", " fd00:7::000a/128", six + "/128"}, {"list", "::ffff:172.16.0.9, FD00:7::A", four + "," + six},
		{"list", "::ffff:172.16.0.9/128", four + "/32"}, {"list", "fd00:7::a/64", "fd00:7::a/64"},
		{"endpoint", "[fd00:7::a%eth0]:179", "[" + six + "]:179"}, {"endpoint", "[FD00:7::A]:179", "[" + six + "]:179"},
	} {
		r := roleAddresses
		if c.role == "endpoint" {
			r = roleEndpoint
		}
		if got := n.text(r, "", c.text); got != c.want || six == "fd00:7::a" {
			t.Errorf("%s became %q, want %q", c.text, got, c.want)
		}
	}
}
