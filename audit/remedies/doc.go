// Package remedies finds remedies for the problems that package state reports. It decides each
// answer once: the cause that several findings share ([Root]), the actions that remove it and their
// costs ([Remedy]), the blocks that can be emptied for a node without one ([Consolidation]), and
// the pods that may restart on other nodes. [Of] returns the remedies for a state.
//
// ways.go has the general remedies, which the documentation lists; roots.go and relief.go adapt
// them to a state. Package repair builds its plans from the same parts.
package remedies

import (
	"sync"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
)

// Remedies holds a state and the remedies for its problems. It is immutable once made.
type Remedies struct {
	*state.State
	// Leftovers lists what unfinished runs of this program left behind.
	Leftovers []*Leftover

	// roots are indexed by ID; shortages, which some roots describe, by pool.
	roots     map[string]*Root
	shortages map[*state.Pool]*shortage
	lasts     map[*state.Pool]*lastBlocks
	// departed are the nodes that no longer exist and left objects behind, by name.
	departed map[string]*state.NodeState
	// cordoned lists the nodes that this program has cordoned, by purpose.
	cordoned map[string][]string
	// The following are computed on first use: only evictions need them.
	podsOf     func() map[string][]*blocks.Workload
	budgets    func() map[string][]budget
	spareable  func() map[*state.Pool][]*state.Block
	spare      func() map[blocks.Family]int
	leftBehind func() map[string]*leftBehind
	unrecorded func() string
	rehomes    func() (now, later []Move)
	full       func() blocks.Names
	takers     func() map[string]bool
	few        func() tooFew
	blockless  func() []*state.NodeBlockStatus
	singletons func() []*state.Borrow
	// recordables are the addresses that live pods use and no block records.
	recordables func() []*recordable.Address
	bound       func() map[string]int
	unrequested func() map[string]blocks.Quantities
	repellers   func() []repeller
	queue       func() []queued
	seated      sync.Map // of demand, []seat
	crowds      sync.Map // of demand, []string
}
