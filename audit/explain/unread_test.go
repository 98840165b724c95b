package explain_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// assertions match clauses that claim, for a kind, that an object does not exist or that all is
// well.
var assertions = map[blocks.Resource]*regexp.Regexp{
	blocks.Pools:       regexp.MustCompile(`no such pool|pool \S+ (does not|no longer) exist|lies in no pool`),
	blocks.Blocks:      regexp.MustCompile(`no such block|[Bb]lock \S* ?(does not|no longer) exist|has no block|its IPAMBlock does not`),
	blocks.Affinities:  regexp.MustCompile(`no (such )?[Aa]ffinity|[Aa]ffinity \S* ?does not exist|\bdelivered\b|by affinity: \S+ has none|without an affinity|affinities:? 0`),
	blocks.Handles:     regexp.MustCompile(`no such handle|[Hh]andle \S* ?does not exist`),
	blocks.Nodes:       regexp.MustCompile(`no such node|no node \S+ exists|(node|host) \S+ (does not|no longer) exist|which (does not|no longer) exist|\bdelivered\b`),
	blocks.Pods:        regexp.MustCompile(`no such pod|no pod \S+ exists|pod \S+ (does not|no longer) exist|nothing (seems to )?(use|own)s? it|: none\b`),
	blocks.BGPConfigs:  regexp.MustCompile(`\bdelivered\b`),
	blocks.BGPPeers:    regexp.MustCompile(`\bdelivered\b`),
	blocks.IPAMConfigs: regexp.MustCompile(`block limit: \d.*|claims? (one at its next|a block)|pods that borrow|borrows an address|strict affinity is (on|off)|without borrowing`),
	blocks.Namespaces:  regexp.MustCompile(`no (such )?namespace`),
}

// TestExplainAssertsNothingUnread: without a kind of object, an explanation does not claim that one
// of them is absent or that traffic arrives, unless the explanation of the whole state also does.
func TestExplainAssertsNothingUnread(t *testing.T) {
	states, err := statedsl.Cases("../checks/testdata/checks/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, name := range testenv.Sample(t, 20, slices.Sorted(maps.Keys(states))) {
		whole := allSaid(t, states[name], "")
		for r, assertion := range assertions {
			said := allSaid(t, states[name], r)
			tried += len(said)
			newAssertions(whole, said, assertion, func(subject, line, _ string) {
				t.Errorf("%s: %s, without %s: %s", name, subject, r, line)
			})
		}
	}
	if tried < 100 {
		t.Errorf("only %d explanations were tried", tried)
	}
}

// TestExplainAssertsNothingUnreadable: if one object cannot be parsed, an explanation does not claim
// that it is absent, unless the explanation of the whole state also does.
func TestExplainAssertsNothingUnreadable(t *testing.T) {
	states, err := statedsl.Cases("../checks/testdata/checks/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, name := range testenv.Sample(t, 20, slices.Sorted(maps.Keys(states))) {
		whole := allSaid(t, states[name], "")
		for r, assertion := range assertions {
			s, err := statedsl.Parse(states[name])
			if err != nil {
				t.Fatal(err)
			}
			subjects, object := subjectsOf(s), spoil(s, r)
			if object == "" {
				continue
			}
			tried++
			newAssertions(whole, explainAll(t, s, subjects), assertion, func(subject, line, clause string) {
				if about := r != blocks.Nodes || strings.Contains(clause, object); about && !strings.Contains(line, "was read") {
					t.Errorf("%s: %s, with %s %s unreadable: %s", name, subject, r, object, line)
				}
			})
		}
	}
	if tried < 20 {
		t.Errorf("only %d objects were spoilt", tried)
	}
}

// newAssertions calls found for each clause of an explanation that an assertion matches, unless the
// explanation of the whole state has the clause, too.
func newAssertions(whole, said map[string][]string, assertion *regexp.Regexp, found func(subject, line, clause string)) {
	for subject, lines := range said {
		for _, line := range lines {
			for _, clause := range assertion.FindAllString(line, -1) {
				if !strings.Contains(strings.Join(whole[subject], "\n"), clause) {
					found(subject, line, clause)
				}
			}
		}
	}
}

// spoil replaces the last object of a kind by a gap, and returns its name; "" if there is none.
func spoil(s *blocks.Snapshot, r blocks.Resource) string {
	g := blocks.Gap{Resource: r, Field: "spec", Reason: "is broken"}
	switch b, a, p, n := len(s.Blocks)-1, len(s.Affinities)-1, len(s.Pools)-1, len(s.Nodes)-1; {
	case r == blocks.Blocks && b >= 0:
		g.Name, g.Prefix, s.Blocks = s.Blocks[b].Name, s.Blocks[b].CIDR, s.Blocks[:b]
	case r == blocks.Affinities && a >= 0:
		g.Name, s.Affinities = s.Affinities[a].Name, s.Affinities[:a]
	case r == blocks.Pools && p >= 0:
		g.Name, s.Pools = s.Pools[p].Name, s.Pools[:p]
	case r == blocks.Nodes && n >= 0:
		g.Name, s.Nodes = s.Nodes[n].Name, s.Nodes[:n]
	}
	if g.Name != "" {
		s.Gaps = append(s.Gaps, g)
	}
	return g.Name
}

// allSaid explains all subjects of a state without a kind, as if it could not be read.
func allSaid(t *testing.T, text string, without blocks.Resource) map[string][]string {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	subjects := subjectsOf(s)
	if without != "" {
		s.Gaps = append(slices.DeleteFunc(s.Gaps, func(g blocks.Gap) bool { return g.Resource == without }), blocks.Gap{Resource: without, Reason: "forbidden"})
		guid := s.Cluster.GUID
		decode.NewObjects(decode.KindOf(without)).Fill(s)
		s.Cluster.GUID = guid
	}
	return explainAll(t, s, subjects)
}

// subjectsOf returns the objects of a state that can be explained, each a kind and a name.
func subjectsOf(s *blocks.Snapshot) [][2]string {
	var subjects [][2]string
	ask := func(kind, name string) { subjects = append(subjects, [2]string{kind, name}) }
	for i := range s.Pools {
		ask("pool", s.Pools[i].Name)
	}
	for i := range s.Nodes {
		ask("node", s.Nodes[i].Name)
	}
	for _, w := range s.Workloads {
		ask("pod", w.FullName())
		for _, a := range w.StatusIPs {
			ask("ip", a.String())
		}
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		ask("block", b.CIDR.String())
		for ordinal, attributes := range b.Ordinals {
			if attributes != blocks.Free {
				ask("ip", b.Address(ordinal).String())
			}
		}
	}
	return subjects
}

// explainAll explains subjects, each a kind and a name.
func explainAll(t *testing.T, s *blocks.Snapshot, subjects [][2]string) map[string][]string {
	t.Helper()
	st := state.New(s, state.Options{})
	found := audit.Run(st, checks.All)
	out := map[string][]string{}
	for _, x := range subjects {
		q, err := explain.ParseQuery(x[1], x[0])
		if err != nil {
			t.Fatal(err)
		}
		if e, err := explain.Explain(st, found, q); err == nil {
			out[fmt.Sprint(x[0], " ", x[1])] = explanationLines(e)
		} // otherwise the command says that the subject was not seen, and names the unread kinds
	}
	return out
}

// TestExplainDoesNotCallUnreadFieldsCorrupt: a block without its attributes is not called corrupt while
// blocks were not read completely, and a pod whose state was not read is not counted as absent.
func TestExplainDoesNotCallUnreadFieldsCorrupt(t *testing.T) {
	s, err := statedsl.Parse("pool pods 10.0.0.0/24 size=26\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\nuse 10.0.0.5 shop/web n1\n" +
		"pod shop/cut n1\ngap ipamblocks block 10.0.0.0/26 has no attributes\n")
	if err != nil {
		t.Fatal(err)
	}
	s.Blocks[0].Attributes = nil
	for _, w := range s.Workloads {
		if w.Name == "cut" {
			w.Phase, w.Extend().Partial = "", "status"
		}
	}
	said := explainAll(t, s, [][2]string{{"node", "n1"}, {"block", "10.0.0.0/26"}, {"ip", "10.0.0.5"}})
	all := strings.Join(slices.Concat(slices.Collect(maps.Values(said))...), "\n")
	for _, not := range []string{"corrupt", "do not exist"} {
		if strings.Contains(all, not) {
			t.Errorf("%q is said:\n%s", not, all)
		}
	}
	for _, want := range []string{"allocated; its attributes were not read", "the state of others, such as shop/cut, cannot be read"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said:\n%s", want, all)
		}
	}
}
