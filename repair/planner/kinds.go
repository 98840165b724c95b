package planner

import (
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

// kinds are all kinds, in the order in which a plan carries them out: what
// misroutes traffic first; affinities before the blocks that they claim, so that
// the facts that an affinity's step stands on are still there; counts before the
// addresses that lower them; a reservation goes before the cordons, or pods come to a node
// whose only block is reserved still; the setting last, when blocks are free.
var kinds = []*repair.StepKind{
	restoreAffinity, deleteAffinity, finishDelete, moves.Reserve, moves.Cordon, moves.Evict, releaseBlock, disownBlock, moves.Claim, createHandle, fixHandleCount,
	recordIP, releaseIP, deleteHandle, restoreWhereabouts, releaseWhereabouts, deleteWhereaboutsReservation, moves.Unreserve, moves.Uncordon, setStrictAffinity,
}

// Kinds returns all kinds of step, in the order in which a plan carries them out.
func Kinds() []*repair.StepKind { return slices.Clone(kinds) }

// rank is the place of a kind in the order of a plan.
func rank(k repair.Kind) int {
	return slices.IndexFunc(kinds, func(x *repair.StepKind) bool { return x.Kind == k })
}

// KindOf returns a kind; nil for one that this version does not know.
func KindOf(k repair.Kind) *repair.StepKind {
	if i := rank(k); i >= 0 {
		return kinds[i]
	}
	return nil
}

// AsksHosts reports whether a kind of repair may release addresses that some host may use.
func AsksHosts(q *repair.RequestKind) bool {
	return slices.ContainsFunc(q.Steps, func(k repair.Kind) bool { return KindOf(k).AsksHosts })
}

// Stands reports whether a step takes back what is there by a state.
func Stands(s *repair.Step, st *state.State) bool {
	k := KindOf(s.Kind)
	return k != nil && k.Restores && k.Verify(st, s) != nil
}

// Finishes reports whether a request asks for a step that was begun for another one, own:
// for its kind and its setting, and by the same filters or by any that it is within.
func Finishes(r *repair.Request, s *repair.Step, own *repair.Request) bool {
	kind := KindOf(s.Kind)
	same := slices.Equal(r.Pools, own.Pools) && slices.Equal(r.Nodes, own.Nodes) && slices.Equal(r.IPs, own.IPs) && slices.Equal(r.Blocks, own.Blocks)
	if kind == nil || !r.Asks(s.Kind) || !same && r.Beside(nil, s.Target, s.Pools, s.Nodes) {
		return false
	}
	return s.Kind != repair.SetStrictAffinity || strconv.FormatBool(*r.StrictAffinity) == s.Guard(repair.GuardWanted)
}
