package alias

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
)

// collected returns aliases that have collected the labels of nodes and a selector.
func collected(nodes []map[string]string, text string) *Aliases {
	n := New()
	for _, of := range nodes {
		for k, v := range of {
			n.LabelKey(k)
			n.LabelValue(k, v)
		}
	}
	n.Selector(text)
	n.EndCollecting()
	return n
}

// TestSelectorsGoOnSelecting: a rewritten selector selects the same nodes as before, by
// their rewritten labels.
func TestSelectorsGoOnSelecting(t *testing.T) {
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	key := func() string { return pick("rack", "Rack", "company.example/row", "kubernetes.io/os", "nowhere") }
	val := func() string { return pick("a", "A", "ab", "b-1", "linux", "windows", "", "gone", "it's") }
	var expression func(depth int) string
	expression = func(depth int) string {
		if depth > 0 {
			switch random.IntN(4) {
			case 0:
				return "!(" + expression(depth-1) + ")"
			case 1:
				return expression(depth-1) + " && " + expression(depth-1)
			case 2:
				return "(" + expression(depth-1) + ") || " + expression(depth-1)
			}
		}
		switch random.IntN(6) {
		case 0:
			return pick("all()", "global()")
		case 1:
			return "has(" + key() + ")"
		case 2:
			return key() + pick(" == ", " != ") + literal(val())
		case 3:
			return key() + pick(" in ", " not in ") + "{" + literal(val()) + ", " + literal(val()) + "}"
		case 4:
			return key() + pick(" contains ", " starts with ", " ends with ") + literal(val())
		}
		return key() + pick(" in ", " not in ") + "{}"
	}
	matched, total := 0, 0
	for range 300 {
		var nodes []map[string]string
		for range 4 {
			of := map[string]string{}
			for range random.IntN(4) {
				of[key()] = val()
			}
			nodes = append(nodes, of)
		}
		text := expression(3)
		n := collected(nodes, text)
		rewritten := n.Selector(text)
		before, err := selector.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		after, err := selector.Parse(rewritten)
		if err != nil {
			t.Fatalf("seed %d: %s became %s: %v", seed, text, rewritten, err)
		}
		for _, labels := range nodes {
			replaced := map[string]string{}
			for k, v := range labels {
				replaced[n.LabelKey(k)] = n.LabelValue(k, v)
			}
			want, got := before.Evaluate(labels), after.Evaluate(replaced)
			if want != got || len(replaced) != len(labels) {
				t.Errorf("seed %d: %s selects %v: %t; %s selects %v: %t", seed, text, labels, want, rewritten, replaced, got)
			}
			total++
			if want {
				matched++
			}
		}
		for _, private := range []string{"rack", "company", "gone", "b-1", "nowhere"} {
			if strings.Contains(rewritten, private) {
				t.Errorf("seed %d: %s became %s", seed, text, rewritten)
			}
		}
	}
	if matched < total/10 || matched > total*9/10 {
		t.Errorf("%d of %d selected: the selectors test little", matched, total)
	}
}

// TestNamesKeepOrderAndCase: replacements sort like the names, and names that differ only
// in case get replacements that differ only in case.
func TestNamesKeepOrderAndCase(t *testing.T) {
	n := New()
	all := []string{"Node-B", "a", "b", "node-10", "node-2", "node-b", "z"}
	for i := range 200 {
		all = append(all, fmt.Sprintf("x%03d", i))
	}
	for _, s := range all {
		n.Name("node", s)
	}
	n.EndCollecting()
	slices.Sort(all)
	replaced := make([]string, len(all))
	for i, s := range all {
		replaced[i] = n.Name("node", s)
	}
	if !slices.IsSorted(replaced) || len(slices.Compact(slices.Clone(replaced))) != len(all) {
		t.Errorf("not in order, or not distinct: %q", replaced)
	}
	if a, b := n.Name("node", "Node-B"), n.Name("node", "node-b"); a == b || strings.ToLower(a) != b {
		t.Errorf("names that differ by case became %q and %q", a, b)
	}
	table := n.Table()["node"]
	if got := slices.Sorted(maps.Values(table)); !slices.Equal(got, all) {
		t.Errorf("the table holds %q", got)
	}
}

// TestNumbersKeepOrder: numeric values become numbers in the same order, because node
// affinities compare them. Values that Kubernetes does not parse as numbers do not become
// numbers.
func TestNumbersKeepOrder(t *testing.T) {
	values := []string{"8", "16", "016", "0016", "4096", "0", "9223372036854775807", "8Gi", "-1", "9223372036854775808", "386"}
	n := New()
	for _, v := range values {
		n.Value(v)
	}
	n.EndCollecting()
	number := func(s string) (int64, bool) { // as labels.Requirement parses them
		v, err := strconv.ParseInt(s, 10, 64)
		return v, err == nil && !strings.HasPrefix(s, "-")
	}
	seen := map[string]string{}
	for _, a := range values {
		if b, is := seen[n.Value(a)]; is || n.Value(a) == a && a != "0" {
			t.Errorf("%s and %q became %q", a, b, n.Value(a))
		}
		seen[n.Value(a)] = a
		for _, b := range values {
			was, isA := number(a)
			wasB, isB := number(b)
			now, isNow := number(n.Value(a))
			nowB, isNowB := number(n.Value(b))
			if isA != isNow || isB != isNowB || isA && isB && cmp.Compare(was, wasB) != cmp.Compare(now, nowB) {
				t.Errorf("%s and %s became %s and %s", a, b, n.Value(a), n.Value(b))
			}
		}
	}
}
