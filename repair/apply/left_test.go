package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// TestLostAnswer: a write whose response was lost counts as done if its complete outcome is read.
// Regardless of the response, a step with leftovers is not done, and the leftovers are reported.
func TestLostAnswer(t *testing.T) {
	lost := errors.New("connection reset")
	behind := fmt.Errorf("releasing it: %w", &repair.LeftBehindError{Resource: blocks.Affinities, Name: "x", State: "is left pendingDeletion", Err: errors.New("forbidden")})
	for name, c := range map[string]struct {
		lost   error
		leaves bool
		want   string
		reason string
	}{
		"the answer is lost, and all is done":              {lost, false, "done", "connection reset"},
		"the answer is lost, and the affinity is left":     {lost, true, "failed", "is left pendingDeletion, and its block is gone"},
		"all went well, and the affinity is left":          {nil, true, "failed", "is left pendingDeletion, and its block is gone"},
		"the writer knows of more than verify looks at":    {behind, false, "failed", "blockaffinity/x is left pendingDeletion: forbidden"},
		"the writer says that the affinity is left, it is": {behind, true, "failed", "blockaffinity/x is left pendingDeletion: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storyDrained(t)
			f.lost, f.leaves = c.lost, c.leaves
			r, err := f.apply(t, t.Context(), f.plan(t, emptyBlocks), Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantOutcomes(t, outcomes(r), c.want, c.want)
			if !strings.Contains(r.Outcomes[0].Reason, c.reason) || r.Left() != (c.want == "failed") {
				t.Errorf("left: %v, and the reason is %q, want %q", r.Left(), r.Outcomes[0].Reason, c.reason)
			}
		})
	}
}

// TestLeftForAMoment: another client that changes the same objects at the same moment also writes
// one after the other, so the run gives it time to finish.
func TestLeftForAMoment(t *testing.T) {
	f := storyDrained(t)
	f.leaves = true
	r, err := f.apply(t, t.Context(), f.plan(t, emptyBlocks), Options{Sleep: func(context.Context, time.Duration) error {
		f.s.Affinities = slices.DeleteFunc(slices.Clone(f.s.Affinities), func(a blocks.Affinity) bool { return a.State == blocks.PendingDeletion })
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "done", "done")
}

// TestLeftIsSaidAgain: a plan that is applied again reports its leftovers, and does not report the
// step as already done.
func TestLeftIsSaidAgain(t *testing.T) {
	f := storyDrained(t)
	f.leaves = true
	p := f.plan(t, emptyBlocks)
	wantOutcomes(t, f.mustApply(t, p, Options{}), "failed", "failed")
	r, err := f.apply(t, t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Gone", "skipped Gone")
	if why := r.Outcomes[0].Reason; !strings.Contains(why, "is left pendingDeletion") {
		t.Errorf("the reason is %q", why)
	}
}

// TestUnreadAfterTheWrite: if the API server cannot be read after a write, the step is not done, and
// the run stops.
func TestUnreadAfterTheWrite(t *testing.T) {
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.before = func(string) error { f.unread = 99; return nil }
	r, err := f.apply(t, t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "failed", "not-tried Unread")
	if why := r.Outcomes[0].Reason; !strings.Contains(why, "it is not known whether it was written") || len(f.wrote) != 1 {
		t.Errorf("%s; wrote %v", why, f.wrote)
	}
}

// TestTargetIsDeleted: a step is skipped if its object no longer exists, and names that reason.
func TestTargetIsDeleted(t *testing.T) {
	const world = "pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\nuse 10.0.0.1 a/b n1\n"
	read := func(text string) *fakeCluster {
		s, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Cluster.Datastore = "kubernetes"
		return &fakeCluster{s: s, now: statedsl.Clock}
	}
	p := read(world).plan(t, repair.Request{MissingAffinities: true})
	f := read("pool pods 10.0.0.0/24\nnode n1\n")
	f.now = f.now.Add(time.Hour)
	wantOutcomes(t, f.mustApply(t, p, Options{}), "skipped Gone")
}
