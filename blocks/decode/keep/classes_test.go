package keep

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
		class    Class
		in, want string
	}{
		{Owner, "host:old-1", "host:node-1"}, {Owner, "virtual:load-balancer", "virtual:load-balancer"}, {Owner, "", ""},
		{Owner, "old-1", "node-1"}, {Owner, "ipip:old-1", "word-1:node-1"}, {Node, "load-balancer", "load-balancer"},
		{Handle, "vxlan-v6-tunnel-addr-old-1", "vxlan-v6-tunnel-addr-node-1"}, {Handle, "k8s-pod-network.abc", "k8s-pod-network.sandbox-1"},
		{Handle, "acme.net.ABC", "network-1.SANDBOX-1"}, {Handle, "Windows-Reserved-IPAM-Handle", "Windows-Reserved-IPAM-Handle"},
		{Handle, "k8s-pod-network.vmi.shop.db.main", "k8s-pod-network.vmi.namespace-1.vm-1"}, {Handle, "acme.net.vmi.shop.db", "network-1.vmi.namespace-1.vm-1"},
		{Handle, "net1.vmi._0123abc", "network-1.vmi._handle-1"}, {Handle, "net1.vmi.acme", "network-1.vmi.handle-1"},
		{Networks, `[{"name": "acme/net1", "interface": "net1", "ips": ["10.9.0.1/24"]}, {"ips": ["acme"]}]`, `[{"name":"namespace-1/network-1","ips":["10.9.0.1"]},{"ips":[]},{"ips":["?"]}]`},
		{Networks, `[{"name": "acme/net1"}, {"name": "acme", "default": true}]`, `[{"name":"namespace-1/network-2","ips":[]},{"name":"network-1","default":true,"ips":[]}]`}, {Networks, "acme", `[{"ips":["?"]}]`},
		{Asks, "net1@eth1, acme/net1", "network-1,namespace-1/network-1"}, {Asks, `[{"name": "net1", "namespace": "acme"}]`, "namespace-1/network-1"}, {Asks, "[", ""}, {Asks, "", ""},
		{OwnerVersion, "kubevirt.io/v1", "kubevirt.io/v1"}, {OwnerVersion, "kubevirt.io/acme", "?"}, {OwnerVersion, "acme.example/v1", "?"},
		{Handle, "lb-0815", "lb-handle-1"}, {Handle, "odd.", "handle-1"}, {Sandbox, "abc", "sandbox-1"},
		{CIDRName, "10-0-0-0-26", "10-0-0-0-26"}, {CIDRName, "fd00--40-122", "fd00--40-122"}, {CIDRName, "acme", "block-1"},
		{PoolList, `["gold","10.0.0.0/16"]`, `["pool-1","10.0.0.0/16"]`}, {PoolList, "gold", "?"}, {AddressJSON, `["10.0.0.9","x"]`, `["10.0.0.9","?"]`}, {AddressJSON, "10.0.0.9", "?"},
		{Addresses, "10.0.0.1/32,fd00::1", "10.0.0.1/32,fd00::1"}, {Addresses, "acme, 10.0.0.1", "?, 10.0.0.1"},
		{Endpoint, "[fd00::1]:179", "[2001:db8::64]:179"}, {Endpoint, "router.acme", "?"}, {Endpoint, "10.9.0.1", "203.0.113.100"},
		{NodeAddress, "10.9.0.1/16", "203.0.113.100/16"}, {NodeAddress, "acme", "?"}, {PoolCIDR, "10.0.0.0/16", "10.0.0.0/16"},
		{LabelText, `{"rack":"r","kubernetes.io/os":"linux"}`, `{"kubernetes.io/os":"linux","label-1":"value-1"}`}, {LabelText, "[]", "?"},
		{Time, "2026-01-01 12:00:00.5 +0000 UTC m=+1", "2026-01-01 12:00:00.5 +0000 UTC m=+1"}, {Time, "yesterday", "?"},
		{Word, "Running", "Running"}, {Word, "4711", "4711"}, {Word, "acme", "word-1"}, {Duration, "5m", "5m"}, {Duration, "x", "?"},
		{Version, "v3.31.0", "v3.31.0"}, {Version, "acme", "?"}, {AS, "1.10", "4200000001"}, {AS, "64512", "64512"}, {AS, "x", "?"}, {Number, "26", "?"},
		{Quantity, "1k", "1k"}, {Quantity, "x", "?"}, {Bool, "true", "true"}, {Bool, "x", "?"},
		{Default, "default", "default"}, {Default, "node.x", "configuration-1"}, {Taint, "node.kubernetes.io/not-ready", "node.kubernetes.io/not-ready"},
		{Taint, "acme", "taint-1"}, {GUID, "123", "cluster-1"}, {UID, "abc", "00000000-0000-0000-0000-000000000001"}, {Stub, "x", "?"},
		{PodRef, "shop/db-0", "namespace-1/pod-1"}, {PodRef, "acme", "?"}, {PodRef, "", ""}, {Controller, "calico-node", "calico-node"}, {Controller, "rke2-canal", "rke2-canal"}, {Controller, "calico-node-acme", "calico-node-controller-1"}, {Controller, "kube-flannel-ds-acme", "kube-flannel-controller-1"}, {Controller, "acme", "controller-1"},
		{RangeName, "10.9.0.0-24", "10.9.0.0-24"}, {RangeName, "acme-n1-10.9.0.0-24", "network-1-10.9.0.0-24"}, {RangeName, "acme-net-fd00---64", "network-1-fd00---64"},
		{RangeName, "acme", "network-1"}, {AddressName, "acme-net-10.9.0.5", "network-1-10.9.0.5"}, {AddressName, "fd00--1", "fd00--1"}, {AddressName, "acme", "network-1"},
		{Attachment, `{"name":"acme","type":"ipvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24","network_name":"acme","gateway":"10.9.0.1"}}`,
			`{"type":"macvlan","ipam":{"type":"whereabouts","network_name":"network-1","range":"10.9.0.0/24"}}`},
		{Attachment, `{"type":"ipvlan","ipam":{"type":"host-local","dataDir":"/acme"}}`, `{"type":"macvlan","ipam":{"type":"host-local"}}`}, {Attachment, `{"type":"acme"}`, "{}"},
		{Attachment, `{"plugins":[{"type":"macvlan","ipam":{"type":"static","addresses":["acme"]}},{"type":"tuning"}]}`, `{"type":"macvlan","ipam":{"type":"static"}}`},
		{Attachment, `{"type":"bridge","ipam":{"type":"host-local","dataDir":"/acme"}}`, `{"ipam":{"type":"other"}}`}, {Attachment, `{"type":"acme"}`, "{}"},
		{NodeSelector, "rack is a", "?"}, {NodeSelector, "", ""},
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
		anonymize(AffinityName, n, "", s)
	}
	n.EndCollecting()
	if got := anonymize(AffinityName, n, "", "old.1-10-0-0-0-26"); got != "node-1-10-0-0-0-26" {
		t.Errorf("an affinity's name became %q", got)
	}
	if got := anonymize(AffinityName, n, "", "old.1-acme"); got != "affinity-1" {
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
		return anonymize(NodeAddress, n, "", a.String()+"/22"), anonymize(Endpoint, n, "", a.String()+":179"),
			anonymize(Addresses, n, "", a.String()+"/32"), anonymize(Networks, n, "", `[{"ips":["`+a.String()+`"]}]`)
	}
	anonymize(PoolCIDR, n, "", pool.String())
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
	anonymize(NodeAddress, n, "", "fd00:7::a")
	anonymize(NodeAddress, n, "", "172.16.0.9")
	anonymize(Endpoint, n, "", "[fd00:7::a%eth0]:179")
	n.EndCollecting()
	six, four := anonymize(NodeAddress, n, "", "fd00:7::a"), anonymize(NodeAddress, n, "", "172.16.0.9")
	for _, c := range []struct{ class, text, want string }{
		{"list", "FD00:7:0::A", six}, {"list", " fd00:7::000a/128", six + "/128"}, {"list", "::ffff:172.16.0.9, FD00:7::A", four + "," + six},
		{"list", "::ffff:172.16.0.9/128", four + "/32"}, {"list", "fd00:7::a/64", "fd00:7::a/64"},
		{"endpoint", "[fd00:7::a%eth0]:179", "[" + six + "]:179"}, {"endpoint", "[FD00:7::A]:179", "[" + six + "]:179"},
	} {
		r := Addresses
		if c.class == "endpoint" {
			r = Endpoint
		}
		if got := anonymize(r, n, "", c.text); got != c.want || six == "fd00:7::a" {
			t.Errorf("%s became %q, want %q", c.text, got, c.want)
		}
	}
}

// Networks and nodes are anonymized in the names of pools and reservations, even if
// trailing hexadecimal digits make the whole name an address. Invalid addresses in
// attachments are dropped.
func TestWhereaboutsAnonymized(t *testing.T) {
	n := alias.New()
	say := func() (out []string) {
		for _, c := range []struct {
			class Class
			text  string
		}{
			{Attachment, `{"type":"ipvlan","ipam":{"type":"whereabouts","range":"secret-host/24","range_start":"SECRET","exclude":["SECRET","10.9.0.0/30"],"node_slice_size":"SECRET","network_name":"cafe"}}`},
			{Node, "worker-a"}, {AddressName, "cafe-fd09--5"}, {RangeName, "cafe-fd09---64"}, {RangeName, "cafe-worker-a-10.9.0.0-28"}, {RangeName, "worker-a-10.9.0.0-28"},
			{AddressName, "fd09--5"},
		} {
			out = append(out, anonymize(c.class, n, "", c.text))
		}
		return out
	}
	say()
	n.EndCollecting()
	got := say()
	network := n.Name(alias.Network, "cafe")
	want := []string{
		`{"type":"macvlan","ipam":{"type":"whereabouts","network_name":"` + network + `","node_slice_size":"?","range":"?","range_start":"?","exclude":["?","10.9.0.0/30"]}}`,
		"node-1", network + "-fd09--5", network + "-fd09---64", network + "-node-1-10.9.0.0-28", "node-1-10.9.0.0-28", "fd09--5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("anonymized as %q, want %q", got, want)
	}
}
