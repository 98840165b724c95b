package planner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// checkPlan checks the properties that every plan must have in any state.
func checkPlan(t *testing.T, st *state.State, req repair.Request, p *repair.Plan) {
	t.Helper()
	after := afterwards(st, p.Steps)
	checkSame(t, st, req, p)
	checkDerived(t, st, req, p)
	checkUsers(t, st, p)
	checkLaw(t, st, p)
	checkFindings(t, st, after, p)
	checkDone(t, st, after, req, p)
	checkYoung(t, st, req, p)
}

// checkYoung checks that each refusal of a young object names the time at which the object is old
// enough.
func checkYoung(t *testing.T, st *state.State, req repair.Request, p *repair.Plan) {
	t.Helper()
	for _, r := range p.Refused {
		id := repair.StepID(r.Kind, r.Target)
		_, refusal := Derive(st, req, id)
		for now := st.Cluster.TakenAt; refusal != nil && refusal.Code == repair.RefusedYoung; {
			_, text, _ := strings.Cut(refusal.Reason, "; plan again after ")
			due, err := time.Parse(time.RFC3339, text)
			if err != nil || !due.After(now) {
				t.Errorf("%s is too young and does not say until when: %q", id, refusal.Reason)
				break
			}
			now = due
			later := repair.NewPretence(st.Snapshot).Done()
			later.Cluster.TakenAt = now
			_, refusal = Derive(state.New(later, state.Options{Grace: max(st.Grace, 1)}), req, id)
		}
	}
}

// checkSame checks that the same state and request give the same bytes, and that a plan survives a
// round trip through JSON.
func checkSame(t *testing.T, st *state.State, req repair.Request, p *repair.Plan) {
	t.Helper()
	first, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(Build(st, req))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("the same state and request give another plan:\n%s", diff)
	}
	var back repair.Plan
	if err := json.Unmarshal(first, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(again)); diff != "" {
		t.Errorf("a plan that is written and read is another:\n%s", diff)
	}
}

// checkDerived checks that each step, with all its guards, and each refusal can be derived from the
// state alone.
func checkDerived(t *testing.T, st *state.State, req repair.Request, p *repair.Plan) {
	t.Helper()
	for i := range p.Steps {
		s := &p.Steps[i]
		from := st
		if s.Kind == repair.SetStrictAffinity {
			from = afterwards(st, slices.DeleteFunc(slices.Clone(p.Steps), func(s repair.Step) bool { return s.Kind == repair.SetStrictAffinity }))
		}
		derived, refusal := Derive(from, req, s.ID)
		if derived == nil {
			t.Errorf("%s is planned and not derived: %+v", s.ID, refusal)
			continue
		}
		if diff := cmp.Diff(s, derived); diff != "" {
			t.Errorf("%s is derived otherwise than planned:\n%s", s.ID, diff)
		}
		if KindOf(s.Kind).Verify(from, s) == nil && !KindOf(s.Kind).Restores {
			t.Errorf("%s is not done, and its outcome is seen all the same", s.ID)
		}
		if len(KindOf(s.Kind).Refs(from, s)) < 3 {
			t.Errorf("%s reads next to nothing again", s.ID)
		}
	}
	codes := map[string][]repair.RefusalCode{}
	wide := req // if several objects have one identity, a filter leaves some out
	wide.Pools, wide.Nodes, wide.IPs, wide.Blocks = nil, nil, nil, nil
	for _, r := range Build(st, wide).Refused {
		codes[repair.StepID(r.Kind, r.Target)] = append(codes[repair.StepID(r.Kind, r.Target)], r.Code)
	}
	for _, r := range p.Refused {
		if r.Code == repair.RefusedLimit || r.Target.Kind == state.KindCluster || r.Kind == repair.ReleaseIP && r.Target.Kind == state.KindBlock || req.AfterRestore == repair.ResolveDuplicates {
			continue // the last is manual work, not a step
		}
		id := repair.StepID(r.Kind, r.Target)
		derived, refusal := Derive(st, req, id)
		if derived != nil || refusal == nil || refusal.Code != repair.RefusedInUse && !slices.Contains(codes[id], refusal.Code) {
			t.Errorf("%s of %s is refused as %s, and by itself: step %v, refusal %+v", r.Kind, r.Target.ID(), r.Code, derived, refusal)
		}
	}
}

// onOtherNetwork reports whether a pod has an address only on networks that do not belong to a
// pool. A pool's name begins with its network's name.
func onOtherNetwork(st *state.State, w *blocks.Workload, a netip.Addr, pool string) bool {
	found := false
	for _, x := range w.Extras().Attached {
		namespace, name, _ := strings.Cut(x.Network, "/")
		i := slices.IndexFunc(st.NetworkAttachments, func(n blocks.NetworkAttachment) bool { return n.Namespace == namespace && n.Name == name })
		switch {
		case x.Addr != a:
		case i < 0 || st.NetworkAttachments[i].NetworkName == "" || strings.Contains(pool, "/"+st.NetworkAttachments[i].NetworkName+"-"):
			return false
		default:
			found = true
		}
	}
	return found
}

// checkUsers checks that no step touches an address that an object names, or a block with addresses
// in use.
func checkUsers(t *testing.T, st *state.State, p *repair.Plan) {
	t.Helper()
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind == repair.EvictPod || s.Group() != "" {
			continue // its pods are moved first
		}
		for j := range st.Workloads {
			for a := range st.Workloads[j].Addresses {
				inBlock := (s.Kind == repair.ReleaseBlock || s.Kind == repair.FinishDelete && s.Target.Kind == state.KindBlock) && repair.PrefixOf(s.Target).Contains(a) && st.Workloads[j].Live()
				other := s.Kind == repair.ReleaseWhereabouts && onOtherNetwork(st, st.Workloads[j], a, s.Target.Name)
				if s.Target.IP == a.String() && s.Kind != repair.RecordIP && !other || inBlock {
					t.Errorf("%s touches %s, which pod %s names", s.ID, a, st.Workloads[j].FullName())
				}
			}
		}
		for j := range st.Nodes {
			for _, tunnel := range st.Nodes[j].Tunnels {
				if s.Target.IP == tunnel.Addr.String() {
					t.Errorf("%s touches %s, the tunnel address of %s", s.ID, tunnel.Addr, st.Nodes[j].Name)
				}
			}
		}
		if b := repair.BlockAt(st, s.Target.CIDR); b != nil && b.Used > 0 && (s.Kind == repair.ReleaseBlock || s.Kind == repair.FinishDelete && s.Target.Kind == state.KindBlock) {
			t.Errorf("%s deletes a block with %d addresses in use", s.ID, b.Used)
		}
	}
}

func stepIDs(p *repair.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.ID)
	}
	return out
}

// checkFindings checks that the steps leave no subject with a worse finding than before, of severity
// error or above.
func checkFindings(t *testing.T, st, after *state.State, p *repair.Plan) {
	t.Helper()
	worst := map[string]state.Severity{}
	for _, before := range []*state.State{st, withoutOurs(st)} {
		for _, f := range audit.Run(before, checks.All).Findings {
			worst[subjectKey(f.Subject)] = max(worst[subjectKey(f.Subject)], f.Severity)
		}
	}
	for _, f := range audit.Run(after, checks.All).Findings {
		shown := func(s repair.Step) bool { return s.Kind == repair.RecordIP && s.Target.Node == f.Subject.Node }
		if f.Check == "node/no-block" && slices.ContainsFunc(p.Steps, shown) {
			continue // the node borrowed before, and the address was not recorded
		}
		if f.Severity >= state.Error && f.Severity > worst[subjectKey(f.Subject)] {
			t.Errorf("with the steps done there is a new finding: %s %s %s: %s", f.Severity, f.Check, f.Subject.ID(), f.Message)
		}
	}
}

// withoutOurs returns the state from before the consolidation that is under way, whose cordoned
// nodes have no findings meanwhile.
func withoutOurs(st *state.State) *state.State {
	x := repair.NewPretence(st.Snapshot)
	for i := range x.Nodes {
		x.Cordon(x.Nodes[i].Name, "")
	}
	x.Reservations = slices.DeleteFunc(x.Reservations, func(r blocks.Reservation) bool { return r.Ours != "" })
	return state.New(x.Done(), state.Options{Grace: max(st.Grace, 1)})
}

func subjectKey(s state.Subject) string { return s.Kind + "|" + s.ID() }

// checkDone checks that the state after the steps shows the outcome of each, and that a new plan has
// none of them.
func checkDone(t *testing.T, before, after *state.State, req repair.Request, p *repair.Plan) {
	t.Helper()
	for i := range p.Steps {
		if _, err := KindOf(p.Steps[i].Kind).VerifySince(before, after, &p.Steps[i]); err != nil {
			t.Errorf("%s is done, and its outcome is not seen: %v", p.Steps[i].ID, err)
		}
	}
	req.MaxSteps = 0
	again := Build(after, req).Steps
	for _, s := range p.Steps {
		// Other nodes are cordoned again for the next node in need.
		if slices.ContainsFunc(again, func(x repair.Step) bool { return x.ID == s.ID && x.Group() == s.Group() }) {
			t.Errorf("%s is done, and planned again", s.ID)
		}
	}
}
