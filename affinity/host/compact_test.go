package host

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

func TestCompact(t *testing.T) {
	for _, c := range []struct {
		name, cidr string
		differ     map[int]string // answers other than blackhole
		want       string
	}{
		{"all alike", "10.0.0.0/26", nil, "10.0.0.0/26 blackhole"},
		{"a single address", "10.0.0.9/32", nil, "10.0.0.9/32 blackhole"},
		{"some addresses", "10.0.0.0/26", map[int]string{5: "unicast", 63: "local"}, "10.0.0.0/26 blackhole, 10.0.0.5/32 unicast, 10.0.0.63/32 local"},
		{"neighbours", "10.0.0.0/26", map[int]string{4: "unicast", 5: "unicast"}, "10.0.0.0/26 blackhole, 10.0.0.4/31 unicast"},
		{"nearly all", "10.0.0.0/30", map[int]string{0: "unicast", 2: "unicast", 3: "unicast"}, "10.0.0.0/30 unicast, 10.0.0.1/32 blackhole"},
		{"one unknown", "10.0.0.0/30", map[int]string{1: ""}, "10.0.0.0/32 blackhole, 10.0.0.2/31 blackhole"},
		{"all unknown", "10.0.0.0/31", map[int]string{0: "", 1: ""}, ""},
		{"IPv6", "2001:db8::40/126", map[int]string{3: "local"}, "2001:db8::40/126 blackhole, 2001:db8::43/128 local"},
		{"the end of all addresses", "255.255.255.252/30", map[int]string{3: "local"}, "255.255.255.252/30 blackhole, 255.255.255.255/32 local"},
	} {
		cidr := netip.MustParsePrefix(c.cidr)
		answers := slices.Repeat([]blocks.HostLookup{{Result: blocks.RouteBlackhole}}, size(cidr))
		for i, result := range c.differ {
			answers[i].Result = result
		}
		var got []string
		for _, l := range compact(cidr, answers) {
			got = append(got, fmt.Sprintf("%s %s", l.Dst, l.Result))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, text, c.want)
		}
	}
}

// TestCompactLosesNothing: for any answers, the most specific lookup that contains an
// address has its answer, and no lookup contains an address with an unknown answer.
func TestCompactLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	results := []string{blocks.RouteBlackhole, blocks.RouteBlackhole, blocks.RouteBlackhole, blocks.RouteUnicast, blocks.RouteLocal, ""}
	for range 300 {
		cidr := netip.PrefixFrom(netip.MustParseAddr("10.0.0.64"), 26+random.IntN(7))
		cidr = cidr.Masked()
		answers := make([]blocks.HostLookup, size(cidr))
		some := results[:1+random.IntN(len(results))]
		for i := range answers {
			answers[i].Result = some[random.IntN(len(some))]
		}
		lookups := compact(cidr, answers)
		a := cidr.Addr()
		for _, want := range answers {
			got, bits := "", -1
			for _, l := range lookups {
				if l.Dst.Contains(a) && l.Dst.Bits() > bits {
					got, bits = l.Result, l.Dst.Bits()
				}
			}
			if got != want.Result {
				t.Fatalf("%s in %s is %q, want %q; lookups %v", a, cidr, got, want.Result, lookups)
			}
			a = a.Next()
		}
	}
}

func TestCandidates(t *testing.T) {
	var routes []blocks.HostRoute
	for _, r := range []string{
		"10.64.0.0/26 blackhole", "10.64.0.0/24 blackhole", "10.64.1.0/26 unreachable", "10.64.2.0/26 prohibit",
		"10.64.3.0/26 throw", "10.64.4.0/26 unicast", "10.64.0.0/26 blackhole", "0.0.0.0/0 blackhole",
		"10.80.0.0/20 blackhole", "10.96.0.0/19 blackhole", "2001:db8::/116 blackhole", "2001:db8:1::/115 blackhole",
	} {
		dst, kind, _ := strings.Cut(r, " ")
		routes = append(routes, blocks.HostRoute{Dst: netip.MustParsePrefix(dst), Type: kind})
	}
	got := joined(candidates(routes))
	if want := "10.64.0.0/24 10.64.1.0/26 10.64.2.0/26 10.80.0.0/20 2001:db8::/116"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, p := range candidates(routes) {
		if size(p) > maxCIDR {
			t.Errorf("%s has more than %d addresses", p, maxCIDR)
		}
	}
}
