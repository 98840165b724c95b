package view

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestUnreadableBlocksLaw: in all states of the checks, with any single block undecodable,
// exact numbers equal those of the full state, and bounds hold.
func TestUnreadableBlocksLaw(t *testing.T) {
	bounds, cases := 0, 0
	states, err := statedsl.Cases("../../../audit/checks/testdata/checks/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, drawn := range states {
		whole := reportOf(t, drawn, nil)
		for i := range whole.Blocks {
			for _, placed := range []bool{true, false} {
				cases++
				where := fmt.Sprintf("%s, block %s undecodable, CIDR and owner known: %v", name, whole.Blocks[i].CIDR, placed)
				cut := reportOf(t, drawn, func(s *blocks.Snapshot) { garble(s, i, placed) })
				for j := range whole.Pools {
					exact := numbersOf(whole, &whole.Pools[j], blocks.Count.String)
					bounds += compareNumbers(t, where+", pool "+whole.Pools[j].Name, exact, numbersOf(cut, &cut.Pools[j], blocks.Count.String))
				}
				for j := range cut.Nodes {
					n := &cut.Nodes[j]
					at := slices.IndexFunc(whole.Nodes, func(w audit.NodeReport) bool { return w.Name == n.Name })
					if at < 0 {
						t.Fatalf("%s: node %s is new", where, n.Name)
					}
					bounds += compareNumbers(t, where+", node "+n.Name, numbersOfNode(whole, &whole.Nodes[at]), numbersOfNode(cut, n))
				}
				if seen := Seen(cut); !strings.Contains(seen, fmt.Sprintf(" of %s", phrase.Plural(len(whole.Blocks)+unreadable(whole, blocks.Blocks), "block"))) || !strings.Contains(seen, "at least ") {
					t.Errorf("%s: looked at %s", where, seen)
				}
			}
		}
	}
	if cases < 100 || bounds < 1000 {
		t.Errorf("only %d cases with %d bounds", cases, bounds)
	}
}

// TestNodesAreCountedOnce: a node of which one field cannot be read is counted, others are missing.
func TestNodesAreCountedOnce(t *testing.T) {
	for name, want := range map[string]string{"n1": "2 nodes,", "n3": "2 of 3 nodes,"} {
		r := reportOf(t, "node n1\nnode n2\npool pods 10.0.0.0/24\nblock 10.0.0.0/26 n1\n", func(s *blocks.Snapshot) {
			s.Gaps = append(s.Gaps, blocks.Gap{Resource: blocks.Nodes, Name: name, Field: "metadata.labels", Reason: "is a number, not an object"})
		})
		if got := Seen(r); !strings.HasPrefix(got, want) {
			t.Errorf("node %s: looked at %s, want %s", name, got, want)
		}
	}
}

// compareNumbers compares formatted numbers with those of the full state, and returns the
// number of bounds.
func compareNumbers(t *testing.T, where string, whole, cut any) (bounds int) {
	t.Helper()
	w, c := reflect.ValueOf(whole), reflect.ValueOf(cut)
	for i := range w.NumField() {
		exact, _, _ := strings.Cut(w.Field(i).String(), ":") // known names follow the colon
		got, _, _ := strings.Cut(c.Field(i).String(), ":")
		exact, _, _ = strings.Cut(exact, "/")
		got, _, _ = strings.Cut(got, "/")
		field := where + ": " + w.Type().Field(i).Name
		lower, atLeast := strings.CutPrefix(got, "≥")
		upper, atMost := strings.CutPrefix(got, "≤")
		switch {
		case got == notKnown || exact == notKnown && !atLeast && !atMost:
		case !atLeast && !atMost:
			if got != exact {
				t.Errorf("%s is written as %s, and is %s", field, got, exact)
			}
		default:
			bounds++
			if exact == notKnown {
				exact = "0"
			}
			is, err := strconv.Atoi(exact)
			if err != nil {
				continue // of an IPv6 pool
			}
			bound, err := strconv.Atoi(map[bool]string{true: lower, false: upper}[atLeast])
			if err != nil || atLeast && bound > is || atMost && bound < is {
				t.Errorf("%s is written as %s, and is %s", field, got, exact)
			}
		}
	}
	return bounds
}

// garble removes a block from a snapshot as if it could not be decoded.
func garble(s *blocks.Snapshot, i int, placed bool) {
	slices.SortFunc(s.Blocks, func(a, b blocks.Block) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	g := blocks.Gap{Resource: blocks.Blocks, Name: s.Blocks[i].CIDR.String(), Reason: "garbage"}
	if placed {
		g.Prefix, g.Owner, g.OwnerKnown = s.Blocks[i].CIDR, s.Blocks[i].Owner, true
	}
	s.Blocks = slices.Delete(s.Blocks, i, i+1)
	s.Gaps = append(s.Gaps, g)
}

func reportOf(t *testing.T, drawn string, edit func(*blocks.Snapshot)) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(s)
	}
	return audit.NewReport(state.New(s, state.Options{}), &audit.Result{})
}
