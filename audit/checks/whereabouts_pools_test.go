package checks_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
)

// TestDuplicateIsOfItsNetworksPools: a finding about two pods with the same address belongs to the
// pools of their network. A pool of another network with the same addresses neither selects nor
// mutes it.
func TestDuplicateIsOfItsNetworksPools(t *testing.T) {
	r := audit.Run(parseState(t, `pool pods 10.0.0.0/24
node n1
pod shop/a n1 10.0.0.5 nets=shop/storage@10.9.0.5
pod shop/b n1 10.0.0.6 nets=shop/storage@10.9.0.5
pod shop/c n1 10.0.0.7 nets=shop/lab@10.9.0.5
nad shop/storage 10.9.0.0/24
nad shop/lab 10.9.0.0/24 network=lab
wpool 10.9.0.0-24 10.9.0.0/24
wpool lab-10.9.0.0-24 10.9.0.0/24
walloc lab-10.9.0.0-24 10.9.0.5 shop/c
`), slices.DeleteFunc(slices.Clone(checks.All), func(c *audit.Check) bool { return c.ID != "whereabouts/duplicate" }))
	if len(r.Findings) != 1 {
		t.Fatalf("found %+v", r.Findings)
	}
	if diff := cmp.Diff([]string{"kube-system/10.9.0.0-24"}, r.Findings[0].Pools); diff != "" {
		t.Errorf("its pools (-want +got):\n%s", diff)
	}
}
