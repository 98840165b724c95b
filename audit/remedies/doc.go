// Package remedies finds the ways out of what the verdicts of package state say is wrong,
// each decided once: what several findings have in common ([Root]), what ends that and
// what it costs ([Remedy]), which blocks can be emptied for a node that lacks one
// ([Consolidation]) and which pods may start again elsewhere. [Of] gives them for a state.
//
// ways.go has the remedies in general, which the documentation tells; roots.go and
// shortage.go those of a certain state. The plans of package repair are made of the same.
package remedies

import (
	"sync"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
)

// Remedies are a state and the ways out of what its verdicts say is wrong. They are
// immutable once made.
type Remedies struct {
	*state.State
	// Leftovers are what runs of this program left that ended before their end.
	Leftovers []*Leftover

	// roots are by ID, and the shortages that some of them are by pool.
	roots     map[string]*Root
	shortages map[*state.Pool]*shortage
	lasts     map[*state.Pool]*lastBlocks
	// cordoned are the nodes that this program has cordoned, by what for.
	cordoned map[string][]string
	// What only evictions ask for is found when it is.
	podsOf     func() map[string][]*blocks.Workload
	budgets    func() map[string][]budget
	spareable  func() map[*state.Pool][]*state.Block
	spare      func() map[blocks.Family]int
	leftBehind func() map[string]*leftBehind
	unrecorded func() string
	rehomes    func() (now, later []Move)
	full       func() []string
	few        func() tooFew
	singletons func() []*state.Borrow
	// recordables are the addresses that live pods use and no block records.
	recordables func() []*recordable.Address
	seated      sync.Map // of demand, []seat
	crowds      sync.Map // of demand, []string
}

// Of returns the ways out of a state, which are found once.
func Of(st *state.State) *Remedies { return state.Derived(st, find) }

func find(s *state.State) *Remedies {
	st := &Remedies{State: s, roots: map[string]*Root{}, shortages: map[*state.Pool]*shortage{}, lasts: map[*state.Pool]*lastBlocks{}, cordoned: map[string][]string{}}
	st.podsOf, st.budgets = sync.OnceValue(st.indexControllers), sync.OnceValue(st.indexBudgets)
	st.spareable, st.spare = sync.OnceValue(st.findSpareable), sync.OnceValue(st.findSpare)
	st.leftBehind, st.unrecorded = sync.OnceValue(st.findLeftBehind), sync.OnceValue(st.findUnrecorded)
	st.rehomes, st.full = sync.OnceValues(st.findRehomes), sync.OnceValue(st.findFull)
	st.recordables = sync.OnceValue(func() []*recordable.Address { return recordable.Of(s) })
	st.few = sync.OnceValue(st.findTooFew)
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Ours != "" {
			st.cordoned[n.Ours] = append(st.cordoned[n.Ours], n.Name)
		}
	}
	st.singletons = sync.OnceValue(st.findSingletons)
	st.findLastBlocks()
	st.findRoots()
	return st
}
