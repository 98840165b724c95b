package checks_test

import (
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
)

// TestInconclusive: a result distinguishes checks without any verdict from checks that only
// skipped single objects, also after joining and confirming.
func TestInconclusive(t *testing.T) {
	const one = "pool pods 10.0.0.0/24\nnode a\nnode b\nblock 10.0.0.0/26 a\naffinity 10.0.0.0/26 a\nuse 10.0.0.1 shop/x b\n"
	handles := ""
	for i := range 5 {
		handles += "use 10.0.0.1" + string(rune('0'+i)) + " shop/p" + string(rune('0'+i)) + " a\n"
	}
	for _, c := range []struct {
		check, state string
		inconclusive bool
	}{
		{"pool/no-free-blocks", "gap pods forbidden\n", true},
		{"pool/low-free-blocks", "gap clusterinformations forbidden\n", true},
		{"config/strict-affinity", "gap bgppeers forbidden\n", true},
		{"route/blackhole", "gap felixconfigurations forbidden\n", true},
		{"ip/borrowed", "gap pods forbidden\n", true},
		{"ip/leaked", "gap pods name=shop/garbled garbage\n", true},
		{"handle/missing", handles, true},
		{"node/no-block", "gap ipamblocks cannot be understood name=x\n", false},
		{"ip/duplicate", "gap ipamblocks forbidden\n", true},
		{"pool/overlap", "gap pods forbidden\n", false},
	} {
		r := audit.Run(parseState(t, one+c.state), checks.All)
		for what, r := range map[string]*audit.Result{"": r, "joined: ": audit.Join(r), "confirmed: ": audit.Confirm(r, r), "withheld: ": r.SkipUnconfirmed("it failed")} {
			if got := slices.Contains(r.Inconclusive, c.check); got != c.inconclusive {
				t.Errorf("%s%s with %q: unjudged is %t", what, c.check, c.state, got)
			}
			says := slices.ContainsFunc(r.Skipped, func(s audit.Skipped) bool { return s.Check == c.check })
			if c.inconclusive && !says {
				t.Errorf("%s%s with %q: the result does not say why", what, c.check, c.state)
			}
		}
	}
}
