package storm

import (
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestRefereeLetsTheCollectorBe: what Calico's collector is known to take is no foul,
// and is in use no longer; from anybody else it would be one.
func TestRefereeLetsTheCollectorBe(t *testing.T) {
	s, r := field(t) // whose client has the name that kube-controllers has
	ctx := t.Context()
	addrs, holds := r.pod(t, s, "ghost", "n1")
	r.Change(holds, func(u *Use) { u.Ghost, u.Collectable = true, true })
	must(t, s.ReleaseHandle(ctx, testcluster.Handle("default", "ghost")))
	must(t, r.Judge(ctx))
	if r.Collected() != 1 || !r.Taken(holds) || r.Uses(addrs[0]) || len(r.Fouls()) > 0 {
		t.Errorf("collected %d, taken %v, in use %v, fouls %v", r.Collected(), r.Taken(holds), r.Uses(addrs[0]), r.Fouls())
	}
	must(t, r.Release(ctx, holds)) // ends what has ended
	must(t, r.Judge(ctx))

	_, holds = r.pod(t, s, "other", "n1")
	r.Change(holds, func(u *Use) { u.Ghost, u.Collectable = true, true })
	s.Calico = NewClient(t, s.Cluster, "calico-audit").Calico
	must(t, s.ReleaseHandle(ctx, testcluster.Handle("default", "other")))
	must(t, r.Judge(ctx))
	if len(r.Fouls()) != 1 {
		t.Errorf("a ghost's address was freed by a repair: fouls %v", r.Fouls())
	}
}

// TestRefereeHearsFalseLeaks: to call an address leaked is a foul while an object
// shows who uses it, and none of a ghost's.
func TestRefereeHearsFalseLeaks(t *testing.T) {
	s, r := field(t)
	ctx := t.Context()
	_, ghost := r.pod(t, s, "ghost", "n1")
	_, _ = r.pod(t, s, "shown", "n1")
	must(t, s.DeletePod(ctx, "default", "ghost", false))
	r.Change(ghost, func(u *Use) { u.Ghost = true })
	tool, err := newTool(s.Cluster.Config, nil)
	must(t, err)
	tool.heard = func(st *state.State, begun time.Time) { r.Hear(st, begun) }
	time.Sleep(1200 * time.Millisecond) // the API server tells the time in whole seconds
	hear := func() []Foul {
		_, err := tool.read(ctx, 0)
		must(t, err)
		return r.TakeFouls()
	}
	if fouls := hear(); len(fouls) > 0 {
		t.Errorf("nothing was said amiss: %v", fouls)
	}
	must(t, s.DeletePod(ctx, "default", "shown", false))
	if fouls := hear(); len(fouls) != 1 || fouls[0].Manager != "audit" {
		t.Errorf("the address of a user who is said to be shown was called leaked: fouls %v", fouls)
	}
}
