package storm

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// TestKilledProgram kills the real program while one of its writes is in progress. The
// half-done work must harm no address in use and must be reported at once. A resumed run
// completes it, and so does the same command again, with a plan or without. An undo
// finishes it, reverts it or names it.
func TestKilledProgram(t *testing.T) {
	t.Parallel()
	v := newVictim(t, program(t), newDamaged(t, testcluster.CRDv1), requests()["all"], kindFlags...)
	t.Run("everywhere", func(t *testing.T) { v.everywhere(t, stepKinds...) })
	t.Run("under-a-filter", v.filtered)
	kills := func(few, many int) int {
		if testenv.EveryCase() {
			return many
		}
		return few
	}
	t.Run("at-random", func(t *testing.T) { v.atRandom(t, kills(2, 40), slices.Clone(followUps)...) })
	others := map[string]func(*testing.T){
		"secondary-networks": func(t *testing.T) {
			v := newVictim(t, v.path, newSecondaryDamage(t), secondaryRepairs, "--whereabouts-stranded", "--whereabouts-reservations")
			v.atRandom(t, kills(1, 8), slices.Clone(followUps)...)
			v.everywhere(t, repair.RestoreWhereabouts, repair.ReleaseWhereabouts, repair.DeleteWhereaboutsReservation)
		},
	}
	for name, request := range requests() {
		others[name] = func(t *testing.T) {
			flag := "--" + name
			if request.StrictAffinity != nil {
				flag += "=true"
			}
			newVictim(t, v.path, v.damaged, request, flag).atRandom(t, kills(2, 8), slices.Clone(followUps)...)
		}
	}
	delete(others, "all")
	for _, name := range testenv.Sample(t, 1, slices.Sorted(maps.Keys(others))) {
		t.Run(name, others[name])
	}
}

// everywhere kills the program at its writes, or at a sample of them. The writes are of steps of all
// given kinds.
func (v *victim) everywhere(t *testing.T, kinds ...repair.Kind) {
	ends := map[string]func(t *testing.T, p killPoint){"resumed": v.resumed, "again": v.again, "planned-again": v.plannedAgain, "undone": v.undone}
	names := slices.Sorted(maps.Keys(ends))
	for i, p := range v.points(rand.New(rand.NewPCG(testenv.Seed(t), 2))) {
		for j, name := range names {
			if testenv.EveryCase() || j == i%len(names) { // a sample tries one end at each point
				t.Run(p.String()+"-"+name, func(t *testing.T) { ends[name](t, p) })
			}
		}
	}
	if v.leftHalf == 0 {
		t.Error("wherever it was killed, it left nothing half-done")
	}
	for _, k := range kinds {
		if !slices.Contains(v.kinds, k) {
			t.Errorf("it makes no step of kind %s", k)
		}
	}
}

func (v *victim) resumed(t *testing.T, p killPoint) {
	dir := v.planned(t)
	v.killed(t, p, dir, "repair", "apply", "plan.json", "--journal", "journal")
	v.ends(t, dir, "repair", "apply", "--resume", "journal")
	v.is(t, v.want, "resumed after it was killed "+v.at(p))
	v.whole(t, p)
}

// again runs the same command again.
func (v *victim) again(t *testing.T, p killPoint) {
	dir, args := v.planned(t), []string{"repair", "apply", "plan.json"}
	if p.k%2 == 0 {
		args = append(args, "--journal", "journal")
	}
	v.killed(t, p, dir, args...)
	v.ends(t, dir, args...)
	v.is(t, v.want, "run again after it was killed "+v.at(p))
	v.whole(t, p)
}

// plannedAgain runs the same command again, without a plan file. A plan that is made
// after the affinity was restored may also release the node's other block, which was kept
// because of the missing affinity. So one more run reaches the same state, whatever the
// first run had done.
func (v *victim) plannedAgain(t *testing.T, p killPoint) {
	must(t, v.image.Restore(t.Context(), v.Cluster))
	dir, args := t.TempDir(), v.unplanned()
	v.killed(t, p, dir, args...)
	v.ends(t, dir, args...)
	v.unharmed(t)
	v.whole(t, p)
	v.ends(t, dir, args...)
	v.is(t, v.healed, "planned again after it was killed "+v.at(p))
}

// filtered checks that the same command finishes a handle that was left marked deleted.
// The filter selected the handle by a block that it counts, but after that no state shows
// the handle's blocks.
func (v *victim) filtered(t *testing.T) {
	dir, request := t.TempDir(), repair.Request{LeakedHandles: true}
	p, st := v.plan(t, request), v.state(t)
	i := slices.IndexFunc(p.Steps, func(s repair.Step) bool {
		return s.Kind == repair.DeleteHandle && len(st.Handle(s.Target.Name).Blocks) > 0
	})
	if i < 0 {
		t.Fatalf("no leaked handle counts a block: %+v", p.Steps)
	}
	request.Blocks = []netip.Prefix{st.Handle(p.Steps[i].Target.Name).Blocks[0].CIDR}
	steps := planner.Build(st, request).Steps
	first := slices.IndexFunc(steps, func(s repair.Step) bool { return s.Kind == repair.DeleteHandle })
	at := killPoint{k: first + 2} // each count is one write, and then the handle is marked
	one := *v
	one.kinds, one.writes = slices.Repeat([]repair.Kind{repair.DeleteHandle}, at.k), v.writes[:at.k]
	args := []string{"repair", "--apply", "--leaked-handles", "--grace=0s", "--block", request.Blocks[0].String()}
	one.killed(t, at, dir, args...)
	left := halfDone(v.state(t))
	if !slices.Equal(left, []string{p.Steps[i].Guard(repair.GuardName)}) {
		t.Errorf("left half-done: %v", left)
	}
	v.ends(t, dir, args...)
	if left := halfDone(v.state(t)); len(left) > 0 {
		t.Errorf("the same command leaves %v", left)
	}
}

// whole fails the test if any object is still half-done.
func (v *victim) whole(t *testing.T, p killPoint) {
	t.Helper()
	if left := halfDone(v.state(t)); len(left) > 0 {
		t.Errorf("killed %s, and then gone on: %v are left half-done", v.at(p), left)
	}
}

func (v *victim) undone(t *testing.T, p killPoint) {
	dir := v.planned(t)
	before, records := v.state(t), v.secondaryRecords(t)
	v.killed(t, p, dir, "repair", "apply", "plan.json", "--journal", "journal")
	code, out := v.run(t, dir, "repair", "undo", "journal", "-o", "wide")
	v.unharmed(t)
	after := v.state(t)
	for _, name := range halfDone(after) {
		if was, now := affinityState(before, name), affinityState(after, name); was != "" && was == now {
			continue // it is as it was
		}
		if code != 4 || !strings.Contains(out, name) {
			t.Errorf("killed %s, and undone with exit code %d: %s is left half-done, and not named:\n%s", v.at(p), code, name, out)
		}
	}
	if code != 0 && code != 4 {
		t.Errorf("killed %s, and undone with exit code %d:\n%s", v.at(p), code, out)
	}
	for _, w := range Worse(before, after, "", v.known(before, after)) {
		t.Errorf("killed %s, and undone, worse than before: %s\n%s", v.at(p), w, out)
	}
	for _, left := range notBack(records, v.secondaryRecords(t)) {
		if t.Logf("undone, %s is not as it was", left); code != 4 || !strings.Contains(out, left) {
			t.Errorf("killed %s, and undone with exit code %d: %s is not as it was, and not named:\n%s", v.at(p), code, left, out)
		}
	}
}

// known returns the findings that are expected after the repair: those of an undisturbed repair,
// and those about objects that already had a finding of at least that severity before.
func (v *victim) known(before, after *state.State) map[string]state.Severity {
	was, known := map[string]state.Severity{}, maps.Clone(v.meant)
	for _, f := range audit.Run(before, checks.All).Findings {
		was[f.Subject.ResourceName()] = max(was[f.Subject.ResourceName()], f.Severity)
	}
	for _, f := range audit.Run(after, checks.All).Findings {
		if was[f.Subject.ResourceName()] >= f.Severity {
			known[f.Fingerprint] = max(known[f.Fingerprint], f.Severity)
		}
	}
	return known
}

// affinityState returns the state of an affinity that is not marked deleted, or "".
func affinityState(st *state.State, name string) blocks.AffinityState {
	for i := range st.Affinities {
		if a := &st.Affinities[i]; a.Name == name && !a.SoftDeleted {
			return a.State
		}
	}
	return ""
}
