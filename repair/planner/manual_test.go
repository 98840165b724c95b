package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/repair"
)

// TestManualNamesWhatFollows: if pods may have to move after a manual step, the step also names the
// command that moves them.
func TestManualNamesWhatFollows(t *testing.T) {
	text := "pool pods 10.0.0.0/26 size=26\nnode a\nnode b\nblock 10.0.0.0/26 a\naffinity 10.0.0.0/26 a\n" +
		"use 10.0.0.1 shop/a a of=ReplicaSet/a ready\nuse 10.0.0.2 shop/b b of=ReplicaSet/b ready\n"
	moves := 0
	for _, m := range Build(parseState(t, text, time.Minute), repair.Request{EmptyBlocks: true}).Manual {
		if strings.Contains(m.Risk, "pods that borrow restart") {
			if moves++; !strings.Contains(strings.Join(m.Then, "\n"), "calico-audit repair --rehome") {
				t.Errorf("%q risks an eviction, and is followed by %q", m.Action, m.Then)
			}
		}
	}
	if moves == 0 {
		t.Error("nothing moves pods")
	}
}
