package remedies

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Consolidation describes how to empty one block of a node that holds several, so that a node that
// cannot allocate can claim it. If Reservation is set, the consolidation is under way. Otherwise it
// can be started, unless Barred lists a reason.
type Consolidation struct {
	// For is the node that gets the block. Holder is the node that has it now.
	For, Holder string
	CIDR        netip.Prefix
	// Pool is the block's pool; nil if the block lies in no pool.
	Pool *state.Pool
	// Block is the block as it is now; nil after it was released and before it is claimed.
	Block *state.Block
	// Moves lists the pods that have to move, by namespace and name. Spare counts how many of them
	// find an address in their new node's own blocks.
	Moves []Move
	Spare int
	// Cordon lists nodes that could get a moved pod, have no address of their own for it and are
	// not cordoned yet. Cordoned lists nodes already cordoned for this consolidation.
	Cordon, Cordoned blocks.Names
	// Precaution is the holder if it is in Cordon although it still has room for its next pod.
	Precaution string
	// Barred lists the obstacles that no consent removes.
	Barred []Bar
	// Unguarded lists the moves that end a bare pod, or the only ready replica of a controller
	// without a PodDisruptionBudget.
	Unguarded []Move
	// Reservation is the IPReservation that started the consolidation; nil before that.
	Reservation *blocks.Reservation
}

// Move is a pod that has to give up an address.
type Move struct {
	Pod  *blocks.Workload
	Addr netip.Addr
	// Elsewhere is true for a borrowing pod if its own node has no address for it, but other nodes
	// have. Stays explains why the pod is not evicted now.
	Elsewhere bool
	Stays     string
}

func (m Move) demand() demand { return demandOf(m.Pod, m.Addr) }

// Bar explains why a block cannot be emptied, or why a pod must not be evicted.
type Bar struct {
	// Addr is the address concerned; the zero value if the reason is not about one address.
	Addr netip.Addr
	Why  string
}

func (b Bar) String() string {
	if !b.Addr.IsValid() {
		return b.Why
	}
	return b.Addr.String() + ": " + b.Why
}

// Name identifies a consolidation in the annotation of everything that is created or cordoned for
// it.
func (c *Consolidation) Name() string {
	return fmt.Sprintf("%s from %s for %s", c.CIDR, c.Holder, c.For)
}

func (c *Consolidation) bar(a netip.Addr, format string, args ...any) {
	c.Barred = append(c.Barred, Bar{a, fmt.Sprintf(format, args...)})
}

// Scratch returns the pods of moves that lose the contents of their emptyDir volumes.
func Scratch(moves []Move) (out []*blocks.Workload) {
	for _, m := range moves {
		if m.Pod.HasScratch {
			out = append(out, m.Pod)
		}
	}
	return out
}

// demand decides where a pod may start: its placement rules, and the families in which it has
// addresses.
type demand struct {
	placement *blocks.Placement
	v4, v6    bool
}

// demandOf returns the demand of a pod that has address a.
func demandOf(w *blocks.Workload, a netip.Addr) demand {
	has := func(f blocks.Family) bool { return blocks.FamilyOf(a) == f || w.HasFamily(f) }
	return demand{w.Placement, has(blocks.IPv4), has(blocks.IPv6)}
}

// families calls yield for each family in which a pod needs an address.
func (x demand) families(yield func(blocks.Family) bool) {
	if x.v4 && !yield(blocks.IPv4) {
		return
	}
	if x.v6 {
		yield(blocks.IPv6)
	}
}

// both reports whether a pod needs an address of each family. One node must have both.
func (x demand) both() bool { return x.v4 && x.v6 }

// mayStart returns a function that reports whether the scheduler may put the pod on a node now.
func (x demand) mayStart() func(*state.NodeState) bool {
	may := x.placement.Matcher()
	return func(h *state.NodeState) bool {
		n := h.Node
		return n != nil && (!n.Unschedulable || x.placement.ToleratesCordon()) && (!n.NotReady && !n.OutOfService || x.placement.ToleratesNotReady()) && may(n)
	}
}

func staysBorrowed(b *state.Borrow) bool {
	return b.VM || b.Workload != nil && b.Workload.Extras().VM != ""
}

// asksByName reports whether the pod requests this very address, so that its replacement gets it
// again.
func asksByName(b *state.Borrow) bool {
	return b.Workload != nil && slices.Contains(b.Workload.Extras().StaticIPs, b.Addr)
}

// Rehoming is the mark on everything that is created or cordoned while borrowing pods restart. A
// consolidation uses its name as the mark.
const Rehoming = "rehome"
