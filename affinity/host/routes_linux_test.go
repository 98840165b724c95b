package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// node creates a namespace with the routes of a cluster's node, and more.
func (m *machine) node() string {
	n := m.namespace("node")
	m.ip(n, `
		link add cali0000000001a type veth peer name uplink
		link set cali0000000001a up
		link set uplink up
		addr add 192.168.7.10/24 dev uplink
		-6 addr add fd07::10/64 dev uplink nodad
		route add default via 192.168.7.1 dev uplink proto dhcp metric 100
		route add 10.64.75.64/26 via 192.168.7.11 dev uplink proto bird
		route add 10.64.76.0/24 proto static nexthop via 192.168.7.11 dev uplink nexthop via 192.168.7.12 dev uplink
		route add 10.64.77.0/24 via inet6 fd07::11 dev uplink proto static

		route add blackhole 10.64.75.128/28 proto bird
		route add 10.64.75.129 dev cali0000000001a scope link
		route add 10.64.75.130 dev cali0000000001a scope link proto 80
		route add 10.64.75.140 via 192.168.7.12 dev uplink proto bird
		route add throw 10.64.75.141
		addr add 10.64.75.132/32 dev uplink
		route add blackhole 10.64.75.0/28 proto 80 metric 7
		route add unreachable 10.64.75.16/28
		route add prohibit 10.64.75.32/28
		route add blackhole 10.80.0.0/12
		route add blackhole 10.64.75.176/28 table 100 proto bird
		route add 10.64.75.180 via 192.168.7.12 dev uplink table 100
		route add blackhole 10.64.75.192/28 table 200
		rule add fwmark 0x10 lookup 100

		-6 route add blackhole 2001:db8:0:1::/124 proto bird
		-6 route add 2001:db8:0:1::3 dev cali0000000001a proto 80
		-6 route add 2001:db8:0:1::4 via fd07::11 dev uplink proto bird
		-6 addr add 2001:db8:0:1::5/128 dev uplink nodad
		-6 route add unreachable 2001:db8:0:2::/124
		-6 route add prohibit 2001:db8:0:3::/124
		-6 route add blackhole 2001:db8:0:4::/124 proto 80 table 150
		-6 rule add from 2001:db8:0:9::/64 lookup 150
	`)
	// The kernel makes the local route of an IPv6 address a little after the address.
	own := netip.MustParseAddr("2001:db8:0:1::5")
	for until := time.Now().Add(10 * time.Second); m.routeGet(n, own).Table != "local"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			m.Fatalf("%s is still no local address", own)
		}
	}
	return n
}

// TestRoutes: a scan lists the same routes as ip, in the tables that rules refer to.
func TestRoutes(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	got := m.scan(n, Options{}).Routes

	want := ipRoutes(t, m.run("ip", "-n", n, "-4", "-j", "-d", "route", "show", "table", "all"))
	want = append(want, ipRoutes(t, m.run("ip", "-n", n, "-6", "-j", "-d", "route", "show", "table", "all"))...)
	want = slices.DeleteFunc(want, func(r blocks.HostRoute) bool { return r.Table == "local" || r.Table == "200" })
	slices.SortFunc(want, compareRoutes)
	if diff := gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("routes (-ip +scan):\n%s", diff)
	}
	// The comparison is worthless if neither has the routes that matter.
	for _, r := range []blocks.HostRoute{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Type: "unicast", Protocol: "dhcp", Table: "main", Metric: 100, Gateway: "192.168.7.1", Dev: "uplink"},
		{Dst: netip.MustParsePrefix("10.64.75.128/28"), Type: "blackhole", Protocol: "bird", Table: "main"},
		{Dst: netip.MustParsePrefix("10.64.75.0/28"), Type: "blackhole", Protocol: "80", Table: "main", Metric: 7},
		{Dst: netip.MustParsePrefix("10.64.75.129/32"), Type: "unicast", Protocol: "boot", Table: "main", Dev: "cali0000000001a"},
		{Dst: netip.MustParsePrefix("10.64.75.141/32"), Type: "throw", Protocol: "boot", Table: "main"},
		{Dst: netip.MustParsePrefix("10.64.76.0/24"), Type: "unicast", Protocol: "static", Table: "main", Gateway: "192.168.7.11", Dev: "uplink"},
		{Dst: netip.MustParsePrefix("10.64.77.0/24"), Type: "unicast", Protocol: "static", Table: "main", Gateway: "fd07::11", Dev: "uplink"},
		{Dst: netip.MustParsePrefix("10.64.75.176/28"), Type: "blackhole", Protocol: "bird", Table: "100"},
		{Dst: netip.MustParsePrefix("2001:db8:0:1::/124"), Type: "blackhole", Protocol: "bird", Table: "main", Metric: 1024, Dev: "lo"},
		{Dst: netip.MustParsePrefix("2001:db8:0:4::/124"), Type: "blackhole", Protocol: "80", Table: "150", Metric: 1024, Dev: "lo"},
	} {
		if !slices.Contains(got, r) {
			t.Errorf("missing: %+v", r)
		}
	}
}

// ipRoutes parses the output of "ip -j -d route".
func ipRoutes(t *testing.T, out []byte) []blocks.HostRoute {
	t.Helper()
	type hop struct {
		Gateway string
		Via     struct{ Host string }
		Dev     string
	}
	var all []struct {
		hop
		Type, Dst, Protocol, Table string
		Metric                     int
		Nexthops                   []hop
	}
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var routes []blocks.HostRoute
	for _, r := range all {
		dst := r.Dst
		if dst == "default" {
			dst = "0.0.0.0/0"
		}
		p, err := netip.ParsePrefix(dst)
		if err != nil {
			a, err := netip.ParseAddr(dst)
			if err != nil {
				t.Fatal(err)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		first := r.hop
		if len(r.Nexthops) > 0 {
			first = r.Nexthops[0]
		}
		routes = append(routes, blocks.HostRoute{
			Dst: p, Type: cmp.Or(r.Type, "unicast"), Protocol: cmp.Or(r.Protocol, "boot"), Table: cmp.Or(r.Table, "main"),
			Metric: r.Metric, Gateway: cmp.Or(first.Gateway, first.Via.Host), Dev: first.Dev,
		})
	}
	return routes
}

// TestLookups: for every address within routes that drop or refuse, the answer equals that
// of "ip route get".
func TestLookups(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	view := m.scan(n, Options{})
	for _, cidr := range []string{
		"10.64.75.128/28", "10.64.75.0/28", "10.64.75.16/28", "10.64.75.32/28", "10.64.75.176/28",
		"2001:db8:0:1::/124", "2001:db8:0:2::/124", "2001:db8:0:3::/124", "2001:db8:0:4::/124",
	} {
		p := netip.MustParsePrefix(cidr)
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			got, ok := answer(view, a)
			if !ok {
				t.Errorf("%s: there is no lookup", a)
				continue
			}
			if want := m.routeGet(n, a); got.Result != want.Type || want.Dev != "" && (got.Dev != want.Dev || got.Gateway != want.Gateway || got.Match != want.Dst || got.Table != want.Table) {
				t.Errorf("%s: scan says %+v, ip says %+v", a, got, want)
			}
		}
	}
	for _, l := range view.Lookups {
		if l.Dst.Overlaps(netip.MustParsePrefix("10.80.0.0/12")) || l.Dst.Overlaps(netip.MustParsePrefix("10.64.75.192/28")) {
			t.Errorf("%s was looked up", l.Dst)
		}
	}
	var texts []string
	for _, l := range view.Lookups {
		texts = append(texts, strings.Join(strings.Fields(strings.Join([]string{l.Dst.String(), l.Result, l.Match.String(), l.Gateway, l.Dev, l.Table}, " ")), " "))
	}
	want := []string{
		"10.64.75.0/28 blackhole 10.64.75.0/28 main",
		"10.64.75.16/28 unreachable 10.64.75.16/28 main",
		"10.64.75.32/28 prohibit 10.64.75.32/28 main",
		"10.64.75.128/28 blackhole 10.64.75.128/28 main",
		"10.64.75.129/32 unicast 10.64.75.129/32 cali0000000001a main",
		"10.64.75.130/32 unicast 10.64.75.130/32 cali0000000001a main",
		"10.64.75.132/32 local 10.64.75.132/32 uplink local",
		"10.64.75.140/32 unicast 10.64.75.140/32 192.168.7.12 uplink main",
		"10.64.75.141/32 none invalid Prefix",
		// Table 100 is for marked packets; others take the default route.
		"10.64.75.176/28 unicast 0.0.0.0/0 192.168.7.1 uplink main",
		"2001:db8:0:1::/124 blackhole 2001:db8:0:1::/124 main",
		"2001:db8:0:1::3/128 unicast 2001:db8:0:1::3/128 cali0000000001a main",
		"2001:db8:0:1::4/128 unicast 2001:db8:0:1::4/128 fd07::11 uplink main",
		"2001:db8:0:1::5/128 local 2001:db8:0:1::5/128 uplink local",
		"2001:db8:0:2::/124 unreachable 2001:db8:0:2::/124 main",
		"2001:db8:0:3::/124 prohibit 2001:db8:0:3::/124 main",
		"2001:db8:0:4::/124 none invalid Prefix",
	}
	if diff := gocmp.Diff(want, texts); diff != "" {
		t.Errorf("lookups (-want +got):\n%s", diff)
	}
	if len(view.Gaps) > 0 && strings.Contains(strings.Join(view.Gaps, "\n"), "look") {
		t.Errorf("gaps: %q", view.Gaps)
	}
}

func answer(v *blocks.HostView, a netip.Addr) (blocks.HostLookup, bool) {
	best := blocks.HostLookup{}
	for _, l := range v.Lookups {
		if l.Dst.Contains(a) && (best.Result == "" || l.Dst.Bits() > best.Dst.Bits()) {
			best = l
		}
	}
	return best, best.Result != ""
}

// routeGet returns the answer of "ip route get".
func (m *machine) routeGet(namespace string, a netip.Addr) blocks.HostRoute {
	m.Helper()
	out, err := exec.Command("ip", "-n", namespace, "-j", "-d", "route", "get", "fibmatch", a.String()).CombinedOutput()
	if err == nil {
		routes := ipRoutes(m.TB.(*testing.T), out)
		if len(routes) != 1 {
			m.Fatalf("ip answers %s", out)
		}
		if a.Is6() && routes[0].Dst == netip.MustParsePrefix("0.0.0.0/0") {
			routes[0].Dst = netip.MustParsePrefix("::/0")
		}
		return routes[0]
	}
	for text, result := range map[string]string{
		"Invalid argument": blocks.RouteBlackhole, "No route to host": blocks.RouteUnreachable,
		"Permission denied": blocks.RouteProhibit, "Network is unreachable": blocks.RouteNone,
	} {
		if bytes.Contains(out, []byte(text)) {
			return blocks.HostRoute{Type: result}
		}
	}
	m.Fatalf("ip route get %s: %v: %s", a, err, out)
	return blocks.HostRoute{}
}

// TestInvalidArgument: the kernel returns "invalid argument" for reasons other than a
// blackhole, too. The answer is then unknown, and no other lookup covers the address.
func TestInvalidArgument(t *testing.T) {
	m := newMachine(t)
	n := m.namespace("odd")
	// A packet would have a loopback source address, which the kernel does not allow.
	m.ip(n, `
		link add uplink type veth peer name far
		link set uplink up
		link set far up
		addr add 192.168.7.10/24 dev uplink
		addr add 127.9.9.9/8 dev uplink
		route add blackhole 10.1.0.0/29
		route add 10.1.0.1 dev uplink src 127.9.9.9
	`)
	if got := m.routeGet(n, netip.MustParseAddr("10.1.0.1")); got.Type != blocks.RouteBlackhole {
		t.Fatalf("this kernel answers %+v: the test needs another case", got)
	}
	view := m.scan(n, Options{})
	for a, want := range map[string]string{"10.1.0.0": "blackhole", "10.1.0.1": "", "10.1.0.2": "blackhole", "10.1.0.7": "blackhole"} {
		if got, _ := answer(view, netip.MustParseAddr(a)); got.Result != want {
			t.Errorf("%s: %q, want %q", a, got.Result, want)
		}
	}
	if gaps := strings.Join(view.Gaps, "\n"); !strings.Contains(gaps, "refused to look up 10.1.0.1 with") {
		t.Errorf("the gaps do not name the address: %s", gaps)
	}
}

// TestRulesThatDrop: a routing rule may drop packets itself, without any route.
func TestRulesThatDrop(t *testing.T) {
	m := newMachine(t)
	n := m.namespace("rules")
	m.ip(n, `
		link add uplink type veth peer name far
		link set uplink up
		link set far up
		addr add 192.168.7.10/24 dev uplink
		route add default via 192.168.7.1
		route add blackhole 10.1.0.0/30
		route add 10.1.0.1 via 192.168.7.1
		rule add to 10.1.0.1 blackhole
		rule add to 10.1.0.2 unreachable
		rule add to 10.1.0.3 prohibit
	`)
	view := m.scan(n, Options{})
	for a, want := range map[string]string{"10.1.0.0": "blackhole", "10.1.0.1": "blackhole", "10.1.0.2": "none", "10.1.0.3": "prohibit"} {
		got, _ := answer(view, netip.MustParseAddr(a))
		if ip := m.routeGet(n, netip.MustParseAddr(a)); got.Result != want || got.Result != ip.Type {
			t.Errorf("%s: %q, want %q; ip says %+v", a, got.Result, want, ip)
		}
	}
}

// TestLimits: omitted routes and lookups are gaps.
func TestLimits(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	view := m.scan(n, Options{MaxRoutes: 3, MaxLookups: 40})
	gaps := strings.Join(view.Gaps, "\n")
	for _, want := range []string{"IPv4 routes are omitted", "IPv6 routes are omitted", "7 blackhole, unreachable or prohibit routes were not looked up"} {
		if !strings.Contains(gaps, want) {
			t.Errorf("the gaps do not say %q:\n%s", want, gaps)
		}
	}
	dropping := 0
	for _, r := range view.Routes {
		if drops(r.Type) {
			dropping++
		}
	}
	if dropping != 10 || len(view.Routes) != dropping+2*3 {
		t.Errorf("%d of %d routes drop or refuse, want 10 of 16: %+v", dropping, len(view.Routes), view.Routes)
	}
	if len(view.Lookups) == 0 {
		t.Error("nothing was looked up")
	}
}

// FuzzRules: messages of future kernels do not crash the parser.
func FuzzRules(f *testing.F) {
	// A rule as sent by a kernel.
	f.Add([]byte("\x02\x00\x00\x00\xfe\x00\x00\x01\x00\x00\x00\x00\x08\x00\x0f\x00\xfe\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var set ruleSet
		_ = set.add(message)
		if slices.Contains(set.tables, tableLocal) || slices.Contains(set.tables, 0) {
			t.Errorf("%x is a rule for the tables %v", message, set.tables)
		}
	})
}

// TestRouteWithoutDestination: a route that is not to an IP network, such as one of MPLS, is left out.
func TestRouteWithoutDestination(t *testing.T) {
	to := &texts{links: map[int]string{}, gateways: map[netip.Addr]string{}}
	if r, ok := to.route(&netlink.Route{Family: unix.AF_MPLS}); ok {
		t.Errorf("got %+v", r)
	}
}
