package blocks_test

import (
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

func TestCIDR(t *testing.T) {
	for text, want := range map[string]string{
		"10.64.75.0/26": "10.64.75.0/26", "10.64.75.1/26": "10.64.75.0/26", "10.0.0.0/08": "10.0.0.0/8",
		"::ffff:10.0.0.0/104": "10.0.0.0/8", "fd00::1/64": "fd00::/64", "::/0": "::/0",
	} {
		if got, ok := blocks.ParseCIDR(text); !ok || got != netip.MustParsePrefix(want) {
			t.Errorf("%s: got %v, %t, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "10.0.0.0", "10.0.0.0/33", "10.0.0/24", "010.0.0.0/8", "fe80::1%eth0/64", "x/8", "10.0.0.0/-1"} {
		if got, ok := blocks.ParseCIDR(text); ok {
			t.Errorf("%q: got %v, want none", text, got)
		}
	}
}
