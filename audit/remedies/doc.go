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

// lastBlocks holds the nodes in need of a pool and the blocks that may be released for them.
type lastBlocks struct {
	// lacking are the nodes that cannot allocate in the pool for lack of a block, sorted; busy are
	// those with pods.
	lacking, busy []string
	// blocks are the empty last blocks that their nodes do not need, in the order of release.
	blocks []*state.Block
}

// Leftover is an object that an unfinished run of this program left behind.
type Leftover struct {
	// Run identifies the run: by the annotation of its temporary objects, or by its journal.
	Run string
	// Mark is that annotation; "" for a run that moved no pods.
	Mark string
	// Reservations are the IPReservations that the run created, Nodes the nodes that it cordoned.
	// Objects are the objects that its steps left half-done.
	Reservations []*blocks.Reservation
	Nodes        []*blocks.Node
	Objects      []blocks.Ref
	// Since is the time of the run's last known write; zero if unknown.
	Since blocks.Time
	// Over is true if the run is known to have ended.
	Over bool

	journal *blocks.KnownRun // nil for none
}

// shortage groups pools of one family that serve the same nodes and are short of blocks or
// addresses, now or soon.
type shortage struct {
	root  *Root
	pools []*state.Pool
	// cut are the nodes that borrow or have waiting pods for lack of addresses; next are the nodes
	// whose next pod will borrow or wait.
	cut, next []*state.NodeBlockStatus
	// has holds all nodes of cut and next.
	has map[*state.NodeBlockStatus]bool
	// borrowed are the addresses that the cut nodes borrow, except those of virtual machines.
	borrowed map[*state.Borrow]bool
}

// leftBehind describes the objects that a vanished node left, and what a plan does with them.
type leftBehind struct {
	// Ownerless addresses that a plan releases. own were recorded for the node, and need the
	// confirmation that its machine is off. nameless lie in its blocks without a recorded node, and
	// need the consent to release without host evidence. beside lie in its blocks but were recorded
	// for other nodes, whose host views show them unused.
	own, nameless, beside []state.AllocationRef
	// stays counts the other ownerless addresses.
	stays int
	// blocks are the node's blocks; freed are the blocks that the plan then deletes.
	blocks, freed []*state.Block
	// affinities counts the affinities deleted without a block of the node.
	affinities int
	// bar is why the first remaining object stays.
	bar state.Bar
}

type tooFew struct {
	pool     string
	left, of int
}

// budget is a PodDisruptionBudget with the function that matches its pods.
type budget struct {
	*blocks.DisruptionBudget
	covers func(*blocks.Workload) bool
}

// repeller is a pod with a required pod anti-affinity. pods reports whether the anti-affinity keeps
// a given pod away.
type repeller struct {
	by   *blocks.Workload
	pods func(*blocks.Workload) bool
}

// queued is a pod that waits for a node. on reports whether a node admits it.
type queued struct {
	*blocks.Workload
	on func(*blocks.Node) bool
}
