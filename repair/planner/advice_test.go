package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// TestAdviceIsNotRefused: if a report recommends a plan, the plan is not refused and keeps at least
// the remedy's promise. The test covers all states of the checks' and the planner's tests, random
// states and the examples. Each state is complete, lacks a kind of object, or has a pod or a block
// that cannot be parsed. The missing kinds change daily; "make soak" tries them all.
func TestAdviceIsNotRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	recommended := 0
	states, leftOut := drawnStates(t), testenv.Sample(t, 3, blocks.Resources)
	for seed := range uint64(200) {
		states[fmt.Sprintf("random state %d", seed)] = func() *blocks.Snapshot {
			text, _ := randomState(rand.New(rand.NewPCG(seed, 8)))
			s, err := statedsl.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	names := slices.Sorted(maps.Keys(states))
	for _, name := range testenv.Sample(t, len(names)/3, names) {
		read := states[name]
		asItIs := func(*blocks.Snapshot) {}
		garbled := func(r blocks.Resource) func(*blocks.Snapshot) {
			return func(s *blocks.Snapshot) {
				s.Gaps = append(s.Gaps, blocks.Gap{Resource: r, Name: "shop/garbled", Reason: "garbage"})
			}
		}
		recommended += compareAdvice(t, name, read, asItIs) +
			compareAdvice(t, name+", with a pod that could not be understood", read, garbled(blocks.Pods)) +
			compareAdvice(t, name+", with a block that could not be understood", read, garbled(blocks.Blocks))
		for _, r := range leftOut {
			recommended += compareAdvice(t, fmt.Sprintf("%s, without %s", name, r), read, func(s *blocks.Snapshot) {
				s.Gaps = append(slices.DeleteFunc(s.Gaps, func(g blocks.Gap) bool { return g.Resource == r }), blocks.Gap{Resource: r, Reason: "forbidden"})
				decode.NewObjects(decode.KindOf(r)).Fill(s)
				s.VMsKnown = s.VMsKnown && !slices.Contains(blocks.VMKinds, r)
			})
		}
	}
	if recommended < 300 || recommended < 1000 && testenv.EveryCase() {
		t.Errorf("only %d plans were recommended", recommended)
	}
}

// drawnStates returns the states of test data and the examples, by name.
func drawnStates(t *testing.T) map[string]func() *blocks.Snapshot {
	t.Helper()
	out := map[string]func() *blocks.Snapshot{}
	for _, pattern := range []string{"../../audit/checks/testdata/*/*.txt", "../../audit/checks/testdata/*.txt", "testdata/plans/*.txt"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no states are %s (%v)", pattern, err)
		}
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range strings.Split("\n"+string(raw), "\n== ")[1:] {
				name, drawn, _ := strings.Cut(one, "\n")
				drawn, _, _ = strings.Cut(drawn, "-- ")
				if strings.HasPrefix(drawn, "unread ") {
					_, drawn, _ = strings.Cut(drawn, "\n")
				}
				out[filepath.Base(path)+", "+name] = func() *blocks.Snapshot {
					s, err := statedsl.Parse(drawn)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
			}
		}
	}
	examples, err := filepath.Glob("../../examples/snapshots/*")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples (%v)", err)
	}
	for _, path := range examples {
		out[path] = func() *blocks.Snapshot {
			s, err := files.ReadFiles([]string{path}, files.FileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	return out
}

// compareAdvice compares the recommendations of a report with the plans for them, and returns the
// number of recommended plans.
func compareAdvice(t *testing.T, name string, read func() *blocks.Snapshot, change func(*blocks.Snapshot)) int {
	t.Helper()
	s := read()
	change(s)
	s.SetBudgetsKnown(s.BudgetsKnown || s.Cluster.Live) // a repair reads them; a report does not, and offers the same
	st := state.New(s, state.Options{})
	r := audit.NewReport(st, audit.Run(st, checks.All))
	plans, promised := map[string]*repair.Plan{}, map[string]bool{}
	compare := func(who string, f *audit.Finding, ways []remedies.Remedy) {
		for _, way := range ways {
			if id := fmt.Sprintf("%+v %+v", way.Commands, way.Yield); !promised[id] {
				promised[id] = true
				promises(t, name, st, way)
			}
			if !way.Repairs() {
				continue
			}
			command := way.Commands[0]
			if plans[command] == nil {
				plans[command] = Build(st, requestOf(t, command))
			}
			if why := refused(plans[command], f, way.Yield != nil); why != "" {
				t.Errorf("%s: %s recommends %q: %s", name, who, command, why)
			}
		}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		compare(f.Check+" of "+f.Subject.ID(), f, f.Remedies)
	}
	for _, d := range r.Diagnoses {
		compare(d.ID, nil, d.Remedies)
	}
	return len(plans)
}

// requestOf parses a remedy's command into a request.
func requestOf(t *testing.T, command string) repair.Request {
	t.Helper()
	words, ok := strings.CutPrefix(command, "calico-audit repair --")
	if !ok {
		t.Fatalf("%q is no plan", command)
	}
	var request []string
	for _, flag := range strings.Split(words, " --") {
		name, values, _ := strings.Cut(strings.Replace(strings.Replace(flag, "strict-affinity", "strict", 1), "allow-newer-calico", "allow-newer", 1), " ")
		request = append(request, name)
		if values != "" {
			request = request[:len(request)-1]
			for _, v := range strings.Split(strings.Trim(values, "'"), ",") {
				request = append(request, name+"="+v)
			}
		}
	}
	req, _ := parseRequest(t, strings.Join(request, " "))
	return req
}

// refused explains why a plan does not help with a finding: the whole plan is refused, or, if the
// remedy does not count its effects, the finding's object is. It ignores refusals for identities
// that the test data lack.
func refused(p *repair.Plan, f *audit.Finding, counted bool) string {
	for _, r := range p.Refused {
		switch {
		case len(p.Steps) == 0 && r.Code == repair.RefusedNotRead && p.Request.Rehome:
			return "it moves no pod: " + r.Reason
		case len(p.Steps) == 0 && r.Code == repair.RefusedNotRead && r.Target.Kind == state.KindCluster && isFor(&p.Request, r.Kind):
			return "it is refused as a whole: " + r.Reason
		case f == nil || counted || r.Target != f.Subject:
		case unpinnedData(r):
		default:
			if !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Target == f.Subject }) {
				return fmt.Sprintf("it refuses that (%s): %s", r.Code, r.Reason)
			}
		}
	}
	return ""
}

// isFor reports whether a kind of step is the main one of a request.
func isFor(r *repair.Request, k repair.Kind) bool {
	return slices.ContainsFunc(repair.Requests, func(q repair.RequestKind) bool { return q.In(r) && q.Steps[0] == k })
}

// TestFingerprintsDiffer: no two findings of a report have the same fingerprint, in all states of
// the checks' and the planner's tests, the examples, and random states.
func TestFingerprintsDiffer(t *testing.T) {
	found := 0
	compare := func(name string, st *state.State) {
		seen := map[string]*audit.Finding{}
		for i, r := 0, audit.NewReport(st, audit.Run(st, checks.All)); i < len(r.Findings); i++ {
			f := &r.Findings[i]
			if other := seen[f.Fingerprint]; other != nil {
				t.Errorf("%s: two findings of %s have one fingerprint:\n%+v %s\n%+v %s", name, f.Check, other.Subject, other.Message, f.Subject, f.Message)
			}
			seen[f.Fingerprint] = f
			found++
		}
	}
	for name, read := range drawnStates(t) {
		compare(name, state.New(read(), state.Options{}))
	}
	for seed := range uint64(100) {
		text, _ := randomState(rand.New(rand.NewPCG(seed, 1)))
		compare(fmt.Sprintf("random state %d", seed), parseState(t, text, 0))
	}
	if found < 1000 {
		t.Errorf("only %d findings", found)
	}
}

// TestExplainDoesNotLoop follows the next steps of explanations. None may lead back to an earlier
// explanation or to the same subject under another name. The test covers all states of the checks'
// and the planner's tests, and the examples.
func TestExplainDoesNotLoop(t *testing.T) {
	followed := 0
	for name, read := range drawnStates(t) {
		st := state.New(read(), state.Options{})
		r := audit.Run(st, checks.All)
		follow := func(f audit.Finding) {
			seen := map[string]bool{} // the subjects, by kind and ID
			for next := f.Fix.Command; ; {
				asked, explains := strings.CutPrefix(next, "calico-audit explain ")
				if asked = strings.Trim(asked, "'"); !explains {
					return
				}
				q, err := explain.ParseQuery(asked, "")
				if err != nil {
					t.Errorf("%s: next of %s: %s: %v", name, f.Check, next, err)
					return
				}
				if q.Check != nil {
					return // the check's documentation describes the next step
				}
				e, err := explain.Explain(st, r, q)
				if err != nil {
					t.Errorf("%s: next of %s: %s: %v", name, f.Check, next, err)
					return
				}
				followed++
				before := next
				for _, s := range e.Subjects {
					if id := s.Subject.Kind + " " + s.Subject.ID(); seen[id] {
						t.Errorf("%s: next of %s comes back to %s", name, f.Check, id)
						return
					} else if slices.ContainsFunc(slices.Concat(s.Findings, s.Related), func(o audit.Finding) bool { return o.Fingerprint == f.Fingerprint }) {
						seen[id] = true
					}
					for _, o := range slices.Concat(s.Findings, s.Related) {
						if o.Fingerprint == f.Fingerprint {
							next = o.Fix.Command
						}
					}
				}
				if next == before {
					t.Errorf("%s: next of %s is again %s", name, f.Check, next)
					return
				}
			}
		}
		for i := range r.Findings {
			f := r.Findings[i]
			follow(f)
			for _, alias := range aliases(f.Subject) {
				x := f
				x.Fix.Command = "calico-audit explain " + alias
				follow(x)
			}
		}
	}
	if followed < 1000 {
		t.Errorf("only %d next steps explain something", followed)
	}
}

// aliases returns the ways to ask for a subject.
func aliases(s state.Subject) []string {
	switch {
	case s.Kind == state.KindNode:
		return []string{"node/" + s.Name, "nodes/" + s.Name}
	case s.Kind == state.KindIP:
		return []string{"ip/" + s.IP}
	case s.Kind == state.KindBlock && s.CIDR != "": // the CIDR of an unreadable block is unknown
		return []string{"block/" + s.CIDR, s.CIDR}
	case s.Kind == state.KindPool:
		return []string{"ippool/" + s.Name}
	}
	return nil
}
