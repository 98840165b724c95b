package remedies

import (
	"fmt"
	"slices"
	"sync"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
	"github.com/calico-audit/calico-audit/blocks"
)

// Of returns the remedies for a state; it computes them once.
func Of(st *state.State) *Remedies { return state.Derived(st, find) }

func find(s *state.State) *Remedies {
	st := &Remedies{State: s, roots: map[string]*Root{}, shortages: map[*state.Pool]*shortage{}, lasts: map[*state.Pool]*lastBlocks{}, cordoned: map[string][]string{}}
	st.podsOf, st.budgets = sync.OnceValue(st.indexControllers), sync.OnceValue(st.indexBudgets)
	st.spareable, st.spare = sync.OnceValue(st.findSpareable), sync.OnceValue(st.findSpare)
	st.leftBehind, st.unrecorded = sync.OnceValue(st.findLeftBehind), sync.OnceValue(st.findUnrecorded)
	st.bound, st.unrequested = sync.OnceValue(st.countBound), sync.OnceValue(st.sumUnrequested)
	st.repellers, st.queue = sync.OnceValue(st.findRepellers), sync.OnceValue(st.findQueue)
	st.rehomes, st.full = sync.OnceValues(st.findRehomes), sync.OnceValue(st.findFull)
	st.recordables = sync.OnceValue(func() []*recordable.Address { return recordable.Of(s) })
	st.takers, st.few, st.blockless = sync.OnceValue(st.findTakers), sync.OnceValue(st.findTooFew), sync.OnceValue(st.findBlockless)
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

// findRoots finds the common causes of verdicts. A cause whose reads are missing is skipped.
func (st *Remedies) findRoots() {
	if st.FirstMissing(shortageReads) == nil {
		st.findShortages()
		st.findBarred()
		st.root("borrowed", func(int) string { return st.borrowedMessage() }, func() []Remedy {
			return []Remedy{st.rehome(nil, slices.DeleteFunc(slices.Clone(st.Borrows), func(b *state.Borrow) bool { return st.RootOfBorrow(b) != "borrowed" }))}
		})
	}
	if st.NodesRead() {
		st.findVanished()
	}
	if st.FirstMissing([]blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods}) == nil {
		st.findNodeNames()
		st.findFamilies()
	}
	st.findLeftovers()
	st.findWaiting()
	st.root("leaks", func(n int) string {
		return fmt.Sprintf("addresses are allocated, but their owners no longer exist (%d)", n)
	}, func() []Remedy { return st.LeakRemedies(st.allLeaks()...) })
	st.root("secondary-interfaces", func(n int) string {
		return fmt.Sprintf("Calico's collector frees %s of secondary interfaces under live pods", phrase.Plural(n, "address"))
	}, func() []Remedy { return Secondary })
	st.root("unrecorded", st.unrecordedMessage, st.recordRemedies)
}
