package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestUnreadableBlocksLeaveNumbersOut: in all states of the checks, with any single block
// undecodable, each remaining series has the same value as in the full state.
func TestUnreadableBlocksLeaveNumbersOut(t *testing.T) {
	states, err := statedsl.Cases("../audit/checks/testdata/checks/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	numbersOf := func(drawn string, edit func(*blocks.Snapshot)) samples {
		s, err := statedsl.Parse(drawn)
		if err != nil {
			t.Fatal(err)
		}
		edit(s)
		out := samples{}
		st := state.New(s, state.Options{})
		out.addNumbers(st, audit.NewReport(st, &audit.Result{}), ExporterOptions{NodeMetrics: true})
		return out
	}
	cases, left := 0, 0
	for name, drawn := range states {
		count := 0
		whole := numbersOf(drawn, func(s *blocks.Snapshot) { count = len(s.Blocks) })
		for i := range count {
			for _, known := range []bool{true, false} {
				cases++
				cut := numbersOf(drawn, func(s *blocks.Snapshot) {
					g := blocks.Gap{Resource: blocks.Blocks, Name: s.Blocks[i].CIDR.String(), Reason: "garbage"}
					if known {
						g.Prefix, g.Owner, g.OwnerKnown = s.Blocks[i].CIDR, s.Blocks[i].Owner, true
					}
					s.Blocks, s.Gaps = slices.Delete(s.Blocks, i, i+1), append(s.Gaps, g)
				})
				for f, text := range cut {
					is := strings.Split(string(whole[f]), "\n")
					for _, line := range strings.Split(string(text), "\n") {
						left++
						if !slices.Contains(is, line) {
							t.Errorf("%s, block %d undecodable, CIDR and owner known %v: the exporter serves %s, and the truth is\n%s", name, i, known, line, whole[f])
						}
					}
				}
			}
		}
	}
	if cases < 100 || left < 1000 {
		t.Errorf("only %d cases with %d series", cases, left)
	}
}

// TestNodesWithoutBlock: a node counts as without a block if it has none at all. A node that only
// has blocks of a pool that no longer serves it gets addresses of its other pools as any node with
// a block does.
func TestNodesWithoutBlock(t *testing.T) {
	s, err := statedsl.Parse("pool old 10.1.0.0/24 disabled\npool pods 10.0.0.0/24\nnode n1\nnode n2\nblock 10.1.0.0/26 n1\naffinity 10.1.0.0/26 n1\nuse 10.1.0.1 shop/x n1\n")
	if err != nil {
		t.Fatal(err)
	}
	out, st := samples{}, state.New(s, state.Options{})
	out.addNumbers(st, audit.NewReport(st, &audit.Result{}), ExporterOptions{})
	if text := string(out.text()); !strings.Contains(text, `calico_audit_nodes_without_block{ip_family="IPv4"} 1`+"\n") {
		t.Errorf("it serves\n%s", text)
	}
}
