package blocks_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/names"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/calico-audit/calico-audit/blocks"
)

// Package cluster tests AffinityName, because Calico's client can write affinities there.
func TestBlockName(t *testing.T) {
	for _, text := range []string{
		"10.64.75.0/26", "10.64.75.77/26", "0.0.0.0/0", "255.255.255.255/32", "fd00::/122", "fd00:10::ffc0/122",
		"2001:db8:1:2:3:4:5:6/128", "::/0", "::1/128", "64:ff9b::10.0.0.0/122",
	} {
		p := netip.MustParsePrefix(text)
		_, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		if want, got := names.CIDRToName(cnet.IPNet{IPNet: *network}), blocks.BlockName(p); got != want {
			t.Errorf("%s: got %s, Calico has %s", text, got, want)
		}
	}
}

func TestPrefixOfName(t *testing.T) {
	for name, want := range map[string]string{
		"10-64-75-0-26": "10.64.75.0/26", "fd00-10--40-122": "fd00:10::40/122", "fd00---122": "fd00::/122",
		"2001-db8-1-2-3-4-5-0-122": "2001:db8:1:2:3:4:5:0/122",
	} {
		if got := blocks.PrefixOfName(name); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"", "default", "a-b", "10-64-75-0", "300-1-1-1-26"} {
		if got := blocks.PrefixOfName(name); got.IsValid() {
			t.Errorf("%q: got %v, want none", name, got)
		}
	}
}
