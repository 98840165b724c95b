package main

import (
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/scale/states"
)

// measureStates measures the construction of each State and a run of all checks over it.
func (r *run) measureStates(t *table, nodes int) {
	for _, layout := range states.Shapes {
		snapshot := layout.Make(nodes, r.pods)
		var making, checking, cpu, confirming series
		found := 0
		for range max(3, r.pairs) {
			began := time.Now()
			st := state.New(snapshot, state.Options{})
			making.time(time.Since(began))
			began, used := time.Now(), ownCPU()
			result := audit.Run(st, checks.All)
			checking.time(time.Since(began))
			cpu.time(ownCPU() - used)
			used = ownCPU()
			found = len(audit.Confirm(result, result).Findings)
			confirming.time(ownCPU() - used)
		}
		t.set(layout.Name, "making the state", making.show(seconds))
		t.set(layout.Name, "all checks", checking.show(seconds))
		t.set(layout.Name, "all checks, CPU", cpu.show(seconds))
		t.set(layout.Name, "confirming by a second reading, CPU", confirming.show(seconds))
		t.set(layout.Name, "findings", fmt.Sprint(found))
		note("%s: %s and %s, %d findings", layout.Name, making.show(seconds), checking.show(seconds), found)
	}
}
