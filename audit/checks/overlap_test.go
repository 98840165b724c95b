package checks

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestOverlapRemedies: if one of two overlapping blocks is unused, it is released, and no pod moves.
// If neither may be released, the finding only names objects to look at. A block whose size differs
// from its pool's needs no remedy if no other block can overlap it.
func TestOverlapRemedies(t *testing.T) {
	const nodes = "pool pods 10.0.0.0/24\nnode a\nnode b\n"
	for name, c := range map[string]struct{ drawn, check, want string }{
		"the inner is empty": {nodes + "block 10.0.0.128/26 b\naffinity 10.0.0.128/26 b\nuse 10.0.0.129 shop/b b\nblock 10.0.0.0/25 a\naffinity 10.0.0.0/25 a\nuse 10.0.0.1 shop/a a\n" +
			"block 10.0.0.64/26 b\naffinity 10.0.0.64/26 b\n", "block/overlap", "calico-audit repair --empty-blocks --block 10.0.0.64/26"},
		"both are in use": {nodes + "block 10.0.0.0/25 a\naffinity 10.0.0.0/25 a\nuse 10.0.0.1 shop/a a\n" +
			"block 10.0.0.64/26 b\naffinity 10.0.0.64/26 b\nuse 10.0.0.65 shop/b b\n", "block/overlap", "calico-audit explain 10.0.0.64/26"},
		"no harm": {nodes + "block 10.0.0.0/24 a\naffinity 10.0.0.0/24 a\nuse 10.0.0.1 shop/a a\nblock 10.0.0.0/26 a\nblock 10.0.0.64/26 a\nblock 10.0.0.128/26 a\nblock 10.0.0.192/26 a\n",
			"block/size-mismatch", "calico-audit explain 10.0.0.0/24"},
	} {
		s, err := statedsl.Parse(c.drawn)
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		st := state.New(s, state.Options{})
		for _, f := range audit.Run(st, All).Findings {
			if f.Check == c.check {
				found = f.Fix.Command
			}
		}
		if found != c.want {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
	}
}
