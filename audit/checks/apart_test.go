package checks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestKindsReadApart: the kinds are read one after the other. If the cluster changes in between, the
// mixture may look damaged, so each such finding must wait for a second reading.
func TestKindsReadApart(t *testing.T) {
	const start = "live\npool pods 10.0.0.0/24 size=28\nnode n1\nnode n2\nblock 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\nblock 10.0.0.32/28 n2\naffinity 10.0.0.32/28 n2\n" +
		"use 10.0.0.33 shop/b n2\n"
	const pod = "use 10.0.0.1 shop/a n1\nhandle h 10.0.0.0/28=1\n"
	for name, c := range map[string]struct{ before, after string }{
		"a pod starts":              {start, start + "use 10.0.0.1 shop/a n1 age=0s\n"},
		"a pod ends":                {start + pod, start},
		"its address is used again": {start + "use 10.0.0.1 shop/a n1\n", start + "use 10.0.0.1 shop/c n1 age=0s\n"},
		"a node joins and claims":   {start, start + "node n3 age=0s\nblock 10.0.0.16/28 n3 age=0s\naffinity 10.0.0.16/28 n3 age=0s\nuse 10.0.0.17 shop/c n3 age=0s\n"},
		"a node leaves":             {start + "node n3\nblock 10.0.0.16/28 n3\naffinity 10.0.0.16/28 n3\nuse 10.0.0.17 shop/c n3\n", start},
		"a block changes its owner": {start + "block 10.0.0.16/28 n1\naffinity 10.0.0.16/28 n1\n", start + "block 10.0.0.16/28 n2 age=0s uid=new\naffinity 10.0.0.16/28 n2 age=0s\n"},
		"a block loses its owner":   {start + "block 10.0.0.16/28 n1\naffinity 10.0.0.16/28 n1\nuse 10.0.0.17 shop/c n2\n", start + "block 10.0.0.16/28 - created=24h age=0s\nuse 10.0.0.17 shop/c n2\n"},
		"a pool is added":           {start, start + "pool more 10.1.0.0/24 size=28 age=0s\nblock 10.1.0.0/28 n1 age=0s\naffinity 10.1.0.0/28 n1 age=0s\nuse 10.1.0.1 shop/c n1 age=0s\n"},
	} {
		read := func(text string) *blocks.Snapshot {
			s, err := statedsl.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		really := map[string]bool{} // before or after
		for _, text := range []string{c.before, c.after} {
			for _, id := range ids(audit.Run(state.New(read(text), state.Options{}), checks.All)) {
				really[id] = true
			}
		}
		for kind, move := range map[string]func(to, from *blocks.Snapshot){
			"blocks":     func(to, from *blocks.Snapshot) { to.Blocks = from.Blocks },
			"affinities": func(to, from *blocks.Snapshot) { to.Affinities = from.Affinities },
			"handles":    func(to, from *blocks.Snapshot) { to.Handles = from.Handles },
			"nodes":      func(to, from *blocks.Snapshot) { to.Nodes = from.Nodes },
			"pods":       func(to, from *blocks.Snapshot) { to.Workloads = from.Workloads },
			"pools":      func(to, from *blocks.Snapshot) { to.Pools = from.Pools },
		} {
			for when, mixed := range map[string][2]string{"late": {c.before, c.after}, "early": {c.after, c.before}} {
				s := read(mixed[0])
				move(s, read(mixed[1]))
				r := audit.Run(state.New(s, state.Options{}), checks.All)
				for i, f := range r.Findings {
					if !f.Absence && f.Severity > state.Info && !really[ids(r)[i]] {
						t.Errorf("%s, and %s are read %s: %s needs no second reading: %s", name, kind, when, f.Check, f.Message)
					}
				}
			}
		}
	}
}
