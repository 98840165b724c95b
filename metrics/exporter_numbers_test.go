package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

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
	numbersOf := func(drawn string, edit func(*blocks.Snapshot)) []string {
		s, err := statedsl.Parse(drawn)
		if err != nil {
			t.Fatal(err)
		}
		edit(s)
		st := state.New(s, state.Options{})
		return numbersText(t, st, ExporterOptions{NodeMetrics: true})
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
				for _, line := range cut {
					left++
					if !slices.Contains(whole, line) {
						t.Errorf("%s, block %d undecodable, CIDR and owner known %v: the exporter serves %s, and the truth is\n%s", name, i, known, line, strings.Join(whole, "\n"))
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
	if lines := numbersText(t, state.New(s, state.Options{}), ExporterOptions{}); !slices.Contains(lines, `calico_audit_nodes_without_block{ip_family="IPv4"} 1`) {
		t.Errorf("it serves\n%s", strings.Join(lines, "\n"))
	}
}

// numbersText returns the series of a State in Prometheus' text format.
func numbersText(t *testing.T, st *state.State, o ExporterOptions) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(func() (s samples) {
		s.addNumbers(st, audit.NewReport(st, &audit.Result{}), o)
		return s
	}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		var text strings.Builder
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(text.String()), "\n")...)
	}
	return lines
}
