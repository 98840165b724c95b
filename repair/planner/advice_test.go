package planner

import (
	"fmt"
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
	"github.com/calico-audit/calico-audit/repair"
)

// TestAdviceIsNotRefused: what a report recommends as a plan of this program's own, a plan
// does not refuse: over all states that the checks and the plans are tried on and the
// examples, as they are, with each kind of object not read, and with a pod that could not
// be understood.
func TestAdviceIsNotRefused(t *testing.T) {
	recommended := 0
	for name, read := range drawnStates(t) {
		asItIs := func(*blocks.Snapshot) {}
		garbled := func(r blocks.Resource) func(*blocks.Snapshot) {
			return func(s *blocks.Snapshot) {
				s.Gaps = append(s.Gaps, blocks.Gap{Resource: r, Name: "shop/garbled", Reason: "garbage"})
			}
		}
		recommended += compareAdvice(t, name, read, asItIs) +
			compareAdvice(t, name+", with a pod that could not be understood", read, garbled(blocks.Pods)) +
			compareAdvice(t, name+", with a block that could not be understood", read, garbled(blocks.Blocks))
		for _, r := range blocks.Resources {
			if testing.Short() && r != blocks.Pods && r != blocks.Handles {
				continue
			}
			recommended += compareAdvice(t, fmt.Sprintf("%s, without %s", name, r), read, func(s *blocks.Snapshot) {
				s.Gaps = append(slices.DeleteFunc(s.Gaps, func(g blocks.Gap) bool { return g.Resource == r }), blocks.Gap{Resource: r, Reason: "forbidden"})
				decode.NewObjects(decode.KindOf(r)).Fill(s)
				s.VMsKnown = s.VMsKnown && !slices.Contains(blocks.VMKinds, r)
			})
		}
	}
	if recommended < 1000 {
		t.Errorf("only %d plans were recommended", recommended)
	}
}

// drawnStates are the states of test data and the examples, by their names.
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

// compareAdvice compares what a report recommends with what a plan says of it, and returns how many
// plans were recommended.
func compareAdvice(t *testing.T, name string, read func() *blocks.Snapshot, change func(*blocks.Snapshot)) int {
	t.Helper()
	s := read()
	change(s)
	st := state.New(s, state.Options{})
	r := audit.NewReport(st, audit.Run(st, checks.All))
	plans := map[string]*repair.Plan{}
	compare := func(who string, f *audit.Finding, ways []remedies.Remedy) {
		if st.Info.Locked && len(ways) > 0 && ways[0].Title == remedies.Unlock.Title {
			return // every plan is refused until then
		}
		for _, way := range ways {
			if !way.Repairs() {
				continue
			}
			command := way.Commands[0]
			if plans[command] == nil {
				req := requestOf(t, command)
				req.AllowNewer = true // whether this program knows the release is not the state's to say
				plans[command] = Build(st, req)
			}
			if why := refused(plans[command], f); why != "" {
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

// requestOf is what a command of a remedy asks for.
func requestOf(t *testing.T, command string) repair.Request {
	t.Helper()
	words, ok := strings.CutPrefix(command, "calico-audit repair --")
	if !ok {
		t.Fatalf("%q is no plan", command)
	}
	var request []string
	for _, flag := range strings.Split(words, " --") {
		name, values, _ := strings.Cut(strings.Replace(flag, "strict-affinity", "strict", 1), " ")
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

// refused says why a plan is of no use for a finding, or at all: it is refused as a whole, or
// refuses what the finding is about. What nothing identifies in the test data is no matter.
func refused(p *repair.Plan, f *audit.Finding) string {
	for _, r := range p.Refused {
		switch {
		case len(p.Steps) == 0 && r.Code == repair.RefusedNotRead && p.Request.Rehome:
			return "it moves no pod: " + r.Reason
		case len(p.Steps) == 0 && r.Code == repair.RefusedNotRead && r.Target.Kind == state.KindCluster && isFor(&p.Request, r.Kind):
			return "it is refused as a whole: " + r.Reason
		case f == nil || f.Root != "" || r.Target != f.Subject || !heeds(&p.Request):
		case r.Code == repair.RefusedUnpinned || r.Code == repair.RefusedConflict && strings.Contains(r.Reason, "objects that say the same of it"):
		default:
			if !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Target == f.Subject }) {
				return fmt.Sprintf("it refuses that (%s): %s", r.Code, r.Reason)
			}
		}
	}
	return ""
}

// heeds reports whether a request is for kinds of repair whose remedies heed what speaks
// against each single object. Others take evidence and consents, which the plan asks for.
func heeds(r *repair.Request) bool {
	return r.OrphanAffinities || r.MissingAffinities || r.SoftDeleted || r.LeakedHandles || r.MissingHandles
}

// isFor reports whether a kind of step is the one that a request is for first.
func isFor(r *repair.Request, k repair.Kind) bool {
	return slices.ContainsFunc(repair.Requests, func(q repair.RequestKind) bool { return q.In(r) && q.Steps[0] == k })
}

// TestFingerprintsDiffer: no two findings of a report have one fingerprint, over all states
// that the checks and the plans are tried on, the examples, and random states.
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

// TestExplainDoesNotLoop: no next step of an explanation is the command that explains the
// same, over all states that the checks and the plans are tried on and the examples.
func TestExplainDoesNotLoop(t *testing.T) {
	followed := 0
	for name, read := range drawnStates(t) {
		st := state.New(read(), state.Options{})
		r := audit.Run(st, checks.All)
		for i := range r.Findings {
			asked, explains := strings.CutPrefix(r.Findings[i].Fix.Command, "calico-audit explain ")
			if !explains || strings.Contains(asked, "'") {
				continue
			}
			q, err := explain.ParseQuery(asked, "")
			if err != nil {
				t.Errorf("%s: next: explain %s: %v", name, asked, err)
				continue
			}
			e, err := explain.Explain(st, r, q)
			if err != nil {
				t.Errorf("%s: next: explain %s: %v", name, asked, err)
				continue
			}
			followed++
			for _, s := range e.Subjects {
				for _, f := range slices.Concat(s.Findings, s.Related) {
					if f.Fix.Command == "calico-audit explain "+asked {
						t.Errorf("%s: explain %s: next of %s: %s", name, asked, f.Check, f.Fix.Command)
					}
				}
			}
		}
	}
	if followed < 200 {
		t.Errorf("only %d next steps explain something", followed)
	}
}
