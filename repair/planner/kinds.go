package planner

import (
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

// kinds lists all kinds in the order of execution. Objects that misroute traffic come first.
// Affinities come before the blocks that they claim, so that the facts behind an affinity's step
// still hold. Counts come before the addresses that lower them. A reservation is removed before the
// cordons; otherwise pods could start on a node whose only block is still reserved. The setting
// comes last, when blocks are free.
var kinds = []*repair.StepKind{
	restoreAffinity, deleteAffinity, finishDelete, moves.Reserve, moves.Cordon, moves.Evict, releaseBlock, disownBlock, moves.Claim, createHandle, fixHandleCount,
	recordIP, releaseIP, deleteHandle, restoreWhereabouts, releaseWhereabouts, deleteWhereaboutsReservation, moves.Unreserve, moves.Uncordon, setStrictAffinity,
}

// Kinds returns all kinds of step, in the order of execution.
func Kinds() []*repair.StepKind { return slices.Clone(kinds) }

// rank is the position of a kind in the order of execution.
func rank(k repair.Kind) int {
	return slices.IndexFunc(kinds, func(x *repair.StepKind) bool { return x.Kind == k })
}

// KindOf returns the StepKind of k; nil if this version does not know it.
func KindOf(k repair.Kind) *repair.StepKind {
	if i := rank(k); i >= 0 {
		return kinds[i]
	}
	return nil
}

// AsksHosts reports whether a kind of repair may release addresses that a host may still use.
func AsksHosts(q *repair.RequestKind) bool {
	return slices.ContainsFunc(q.Steps, func(k repair.Kind) bool { return KindOf(k).AsksHosts })
}

// Stands reports whether the object that a restoring step removes still exists in a state.
func Stands(s *repair.Step, st *state.State) bool {
	k := KindOf(s.Kind)
	return k != nil && k.Restores && k.Verify(st, s) != nil
}

// Finishes reports whether a request covers a step that was started for request own: it asks for
// the same kind and setting, with the same filters or wider ones.
func Finishes(r *repair.Request, s *repair.Step, own *repair.Request) bool {
	kind := KindOf(s.Kind)
	same := slices.Equal(r.Pools, own.Pools) && slices.Equal(r.Nodes, own.Nodes) && slices.Equal(r.IPs, own.IPs) && slices.Equal(r.Blocks, own.Blocks)
	if kind == nil || !r.Asks(s.Kind) || !same && r.Beside(nil, s.Target, s.Pools, s.Nodes) {
		return false
	}
	return s.Kind != repair.SetStrictAffinity || strconv.FormatBool(*r.StrictAffinity) == s.Guard(repair.GuardWanted)
}
