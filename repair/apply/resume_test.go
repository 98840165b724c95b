package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

func (h halfCluster) DeleteHandle(_ context.Context, o repair.ObjectRef) error {
	return h.write(o.Resource, o.Name, func() {
		h.s.Handles = slices.DeleteFunc(slices.Clone(h.s.Handles), func(x *blocks.Handle) bool { return x.Name == o.Name })
	})
}

func (h halfCluster) PutAffinityState(_ context.Context, o repair.ObjectRef, s blocks.AffinityState) error {
	return h.write(o.Resource, o.Name, func() {
		h.s.Affinities = slices.Clone(h.s.Affinities)
		i := slices.IndexFunc(h.s.Affinities, func(a blocks.Affinity) bool { return a.Name == o.Name })
		h.s.Affinities[i].State = s
	})
}

// affinityStep is a step that deletes an affinity.
var affinityStep = repair.Step{ID: "x", Kind: repair.DeleteAffinity, Target: state.Subject{Kind: state.KindAffinity, CIDR: "10.0.3.0/26", Node: "n2"},
	Guards: guards(repair.GuardName, undoAffinity, repair.GuardUID, "uid-"+undoAffinity)}

var affinitySpec = map[blocks.Resource]string{blocks.Affinities: `{"cidr":"10.0.3.0/26","node":"n2","state":"confirmed"}`}

// changed makes the first n writes fail because another client wrote the object.
func changed(n int) func(*fakeCluster) {
	return func(f *fakeCluster) {
		f.before = func(string) error {
			if n--; n >= 0 {
				return repair.ErrChanged
			}
			return nil
		}
	}
}

// TestResumeOutcomes: a run that continues another reports the outcome of each step that the other
// began. It carries out the remaining steps like any other.
func TestResumeOutcomes(t *testing.T) {
	const its = "block 10.0.3.0/26 n2\nuse 10.0.3.1 a/b n2\n"
	refused := func(f *fakeCluster) { f.before = func(string) error { return errors.New("refused") } }
	away := func(f *fakeCluster) { f.unread = 99 }
	awayAfter := func(f *fakeCluster) { f.before = func(string) error { f.unread = 99; return nil } }
	for name, c := range map[string]struct {
		says, world string
		tweak       func(*fakeCluster)
		want        string // "" if the step is carried out like any other
		writes      int
	}{
		"not started":                       {"", undoWorld, nil, "", 0},
		"nothing was sent":                  {"start ", undoWorld, nil, "", 0},
		"done":                              {leftPatch + sentDelete + "end|done", undoWorld, nil, "already", 0},
		"found done":                        {leftPatch + sentDelete + "end|already", undoWorld, nil, "already", 0},
		"done, and it is there":             {leftPatch + sentDelete + "end|done", undoWorld + "affinity 10.0.3.0/26 n2", nil, "", 0},
		"done without a write":              {"start end|done", undoWorld, nil, "already", 0},
		"found done without a write":        {"start end|already", undoWorld, nil, "already", 0},
		"refused without a write":           {"start end|skipped|Changed", undoWorld, nil, "", 0},
		"failed without a write":            {"start end|failed", undoWorld, nil, "", 0},
		"left":                              {leftPatch, undoLeft, nil, "done", 1},
		"failed, and left":                  {leftPatch + "end|failed", undoLeft, nil, "done", 1},
		"left, and gone by now":             {leftPatch, undoWorld, nil, "already", 0},
		"the deletion is refused":           {leftPatch, undoLeft, refused, "failed", 0},
		"another client wrote it":           {leftPatch, undoLeft, changed(1), "done", 1},
		"another client writes it all time": {leftPatch, undoLeft, changed(99), "failed", 0},
		"it cannot be read":                 {leftPatch, undoLeft, away, "skipped Unread", 0},
		"it cannot be read afterwards":      {leftPatch, undoLeft, awayAfter, "skipped Unread", 0},
		"the block is its host's":           {leftPatch, undoLeft + its, nil, "skipped Changed", 1},
		"its host's, written meanwhile":     {leftPatch, undoLeft + its, changed(1), "skipped Changed", 1},
		"its host's, written all the time":  {leftPatch, undoLeft + its, changed(99), "failed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := told(t, affinityStep, affinitySpec, c.says)
			snap, err := statedsl.Parse(c.world)
			if err != nil {
				t.Fatal(err)
			}
			cluster := &fakeCluster{s: snap, now: statedsl.Clock, journal: newTestJournal(t)}
			sleep := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
			x := newRun(cluster, halfCluster{cluster}, newTestJournal(t), 0, Options{Resume: f, Sleep: sleep})
			x.guid = snap.Cluster.GUID
			if err := x.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.tweak != nil {
				c.tweak(cluster)
			}
			o, settled := (&applying{run: x, plan: f.Plan}).resume(t.Context(), &affinityStep)
			got := strings.TrimSpace(string(o.Status) + " " + string(o.Code))
			if got != c.want || settled != (c.want != "") {
				t.Errorf("%s (%s), settled %v; want %q", got, o.Reason, settled, c.want)
			}
			if x.wrote != c.writes {
				t.Errorf("counts %d steps that wrote, want %d", x.wrote, c.writes)
			}
		})
	}
}

// TestUndoOutcomes: an undo tries again if another client writes the object, and reports the
// outcome of its write.
func TestUndoOutcomes(t *testing.T) {
	const its = undoLeft + "block 10.0.3.0/26 n2\n"
	lost := func(err error) func(*fakeCluster) { return func(f *fakeCluster) { f.lost = err } }
	fails := func(err error) func(*fakeCluster) {
		return func(f *fakeCluster) { f.before = func(string) error { return err } }
	}
	handle := repair.Step{ID: "x", Kind: repair.ReleaseIP, Target: state.Subject{CIDR: "10.0.0.0/26", IP: "10.0.0.5", Node: "n2"}, Guards: guards(repair.GuardHandle, "k8s-pod-network.gone")}
	for name, c := range map[string]struct {
		step   repair.Step
		says   string
		world  string
		tweak  func(*fakeCluster)
		want   string
		reason string // a part of the reason
		wrote  int
	}{
		"put back":                          {affinityStep, leftPatch, its, nil, "done", "restore the affinity n2-10.0.3.0/26 to its state", 1},
		"another client wrote it twice":     {affinityStep, leftPatch, its, changed(2), "done", "restore the affinity", 1},
		"another client writes it all time": {affinityStep, leftPatch, its, changed(3), "skipped Changed", "", 0},
		"the write is refused":              {affinityStep, leftPatch, its, fails(errors.New("refused")), "failed", "refused", 0},
		"the answer is lost":                {affinityStep, leftPatch, its, lost(errors.New("timeout")), "done", "restore the affinity", 1},
		"a cordon is kept":                  {affinityStep, leftPatch, its, lost(&repair.KeptCordonError{}), "done", (&repair.KeptCordonError{}).Error(), 1},
		"a cordon is kept, and no more":     {affinityStep, leftPatch, its, fails(&repair.KeptCordonError{}), "failed", (&repair.KeptCordonError{}).Error(), 0},
		"the write does not show":           {affinityStep, leftPatch, its, func(f *fakeCluster) { f.deaf = true }, "failed", "it was written, but reading again does not show it", 1},
		"it cannot be read afterwards":      {affinityStep, leftPatch, its, func(f *fakeCluster) { f.before = func(string) error { f.unread = 99; return nil } }, "failed", "it is not known whether it was written", 1},
		"finished":                          {affinityStep, leftPatch, undoLeft, nil, "done Finished", "deleting the affinity", 1},
		"finished, and not taken back":      {handle, numbered, strings.Replace(freedWorld, "ours", "", 1) + kept, nil, "skipped Unknown", "it was left half-done, and is finished", 1},
	} {
		t.Run(name, func(t *testing.T) {
			specs := map[blocks.Resource]string{blocks.Affinities: affinitySpec[blocks.Affinities], blocks.Blocks: `{"cidr":"10.0.0.0/26","affinity":"host:n1"}`, blocks.Handles: `{"handleID":"k8s-pod-network.gone"}`}
			res, wrote, err := undoFake(t, c.world, told(t, c.step, specs, c.says), c.tweak)
			if err != nil || len(res.Outcomes) != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			if got, why := outcomes(res)[0], res.Outcomes[0].Reason; got != c.want || !strings.Contains(why, c.reason) || len(wrote) != c.wrote {
				t.Errorf("%s (%s), written %v; want %s (%s), %d writes", got, why, wrote, c.want, c.reason, c.wrote)
			}
		})
	}
}
