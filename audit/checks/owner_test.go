package checks_test

import (
	"net/netip"
	"strings"
	"testing"
)

// TestTunnelOfVanishedNode: a tunnel is released last, and only if its machine is known to be
// off.
func TestTunnelOfVanishedNode(t *testing.T) {
	const tunnel = `
pool pods 10.0.0.0/24
node n1
pod shop/x n1 10.0.0.1
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/x node=n1 handle=x
alloc 10.0.0.5 node=gone type=vxlanTunnelAddress handle=vxlan-tunnel-addr-gone
`
	for name, c := range map[string]struct {
		state      string
		terminated []string
		owned      bool
		say        string
	}{
		"its machine may run":                 {tunnel, nil, true, "no longer exists, which does not prove that its machine is off"},
		"another machine is off":              {tunnel, []string{"other"}, true, "does not prove"},
		"its machine is off":                  {tunnel, []string{"gone"}, false, "it is a tunnel address of node gone, which no longer exists"},
		"a pod is still bound to it":          {tunnel + "pod shop/y gone 10.1.0.1\n", []string{"gone"}, true, "pod shop/y is still bound to it"},
		"a pod of it has finished":            {tunnel + "pod shop/y gone 10.1.0.1 phase=Failed\n", []string{"gone"}, false, "no longer exists"},
		"an address of it is owned":           {tunnel + "alloc 10.0.0.6 pod=shop/y node=gone handle=y\npod shop/y - 10.0.0.6 phase=Succeeded\n", []string{"gone"}, true, "10.0.0.6 of it is still owned"},
		"an address of it has no known owner": {tunnel + "alloc 10.0.0.6 node=gone handle=podman.1\n", []string{"gone"}, true, "10.0.0.6 of it is still owned"},
		"an address of it is leaked":          {tunnel + "alloc 10.0.0.6 pod=shop/y node=gone handle=y\n", []string{"gone"}, false, "no longer exists"},
		"it joined between two lists":         {strings.ReplaceAll(tunnel, "=vxlan-tunnel-addr-gone", "=vxlan-tunnel-addr-gone age=10s"), []string{"gone"}, true, "it was assigned only at"},
		"the handle alone names it":           {strings.ReplaceAll(tunnel, "node=gone type=vxlanTunnelAddress ", ""), []string{"gone"}, false, "no longer exists"},
		"the node could not be read":          {tunnel + "gap nodes name=gone garbage\n", []string{"gone"}, true, "tunnel address of node gone"},
	} {
		t.Run(name, func(t *testing.T) {
			st := stateSaying(t, c.state, c.terminated...)
			r, ok := st.Allocation(netip.MustParseAddr("10.0.0.5"))
			if !ok {
				t.Fatal("the tunnel's address is not allocated")
			}
			if v := st.Classify(r); v.Owned != c.owned || !strings.Contains(v.Why(), c.say) {
				t.Errorf("owned %t, %q; want %t, %q", v.Owned, v.Why(), c.owned, c.say)
			}
		})
	}
}
