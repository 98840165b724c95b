package waiting_test

import (
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestNewestEvent: of a pod's events, in whatever order they were read, the last one counts. Those
// that are older than the pod are about an earlier pod of its name.
func TestNewestEvent(t *testing.T) {
	for want, minutes := range map[string][]int{
		"second": {20, 10}, "first": {10, 20}, "": {90, 80},
	} {
		snap, err := statedsl.Parse("node n1\npod shop/web n1 phase=Pending age=1h\nevent shop/web first\nevent shop/web second\n")
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range minutes {
			e := &snap.SandboxEvents[i]
			e.Seen -= blocks.Time(time.Duration(m) * time.Minute)
		}
		st := state.New(snap, state.Options{})
		if got := waiting.Seen(st, st.Workloads[0]).Quote(); got != want {
			t.Errorf("seen %d minutes ago: %q, want %q", minutes, got, want)
		}
	}
}
