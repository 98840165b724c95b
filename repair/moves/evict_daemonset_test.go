package moves

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// TestDaemonSetPodIsAwaited checks that every reading before the replacement of a
// DaemonSet's pod exists gives the same answer.
func TestDaemonSetPodIsAwaited(t *testing.T) {
	const others = `pool pods 10.0.0.0/26 size=28
node a
node b
block 10.0.0.0/28 a
affinity 10.0.0.0/28 a
block 10.0.0.16/28 b
affinity 10.0.0.16/28 b
use 10.0.0.17 shop/log-b b ready of=DaemonSet/log
`
	before := parsed(t, others+"use 10.0.0.1 shop/log-a a ready of=DaemonSet/log\n")
	s := &repair.Step{
		Kind: repair.EvictPod, Target: state.Subject{Kind: "IP", IP: "10.0.0.1", Node: "a"},
		Guards: repair.Guards(repair.GuardPod, "shop/log-a", repair.GuardController, "uid-shop-log", repair.GuardUID, "uid-log-a", repair.GuardPodUID, "uid-log-a"),
	}
	for now, want := range map[*state.State]bool{
		parsed(t, others): false,
		parsed(t, others+"use 10.0.0.2 shop/log-c a ready of=DaemonSet/log\n"): true,
	} {
		for range 3 {
			if done, waits, err := replacedPod(before, now, s); done != want || err != nil {
				t.Errorf("replaced: %v (%s, %v), not %v", done, waits, err, want)
			}
			if refs, few := Awaited(before, now, s); !few || len(refs) == 0 {
				t.Errorf("the wait reads %v, little of it: %v", refs, few)
			}
		}
	}
}

func parsed(t *testing.T, text string) *state.State {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return state.New(snap, state.Options{})
}
