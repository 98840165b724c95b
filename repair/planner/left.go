package planner

import (
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// The following functions find objects that a step may have left behind, as a [LeftBehindError];
// nil if there are none.

// ownersAffinity: if a block names a host, that host's affinity must exist and not be marked
// deleted. An empty host, or a block that another host owns now, does not concern the step.
func ownersAffinity(st *state.State, cidr, host string) error {
	b := repair.BlockAt(st, cidr)
	if b == nil || b.SoftDeleted || host == "" || b.Owner.Node() != host {
		return nil
	}
	switch a := repair.OwnAffinity(st, b); {
	case a == nil:
		return repair.LeftBehind(blocks.Blocks, b.Name, "is left without an affinity of %s", host)
	case a.SoftDeleted, a.State == blocks.PendingDeletion:
		return repair.LeftBehind(blocks.Affinities, a.Name, "is left %s, and its block names %s", leftState(a), host)
	}
	return nil
}

// releasedAffinity: the affinity that a step deletes along with its block must be gone, unless its
// host claims the CIDR again.
func releasedAffinity(st *state.State, s *repair.Step) error {
	a := repair.AffinityNamed(st, s.Guard(repair.GuardAffinity))
	if a == nil || a.UID() != s.Guard(repair.GuardAffinityUID) || repair.ClaimedAgain(a) {
		return nil
	}
	b := repair.BlockAt(st, s.Target.CIDR)
	if b != nil && b.Owner == a.Owner {
		return nil // its host's again: see ownersAffinity
	}
	why := "is gone"
	if b != nil {
		why = "belongs to " + b.Owner.String()
	}
	return repair.LeftBehind(blocks.Affinities, a.Name, "is left %s, and its block %s", leftState(a), why)
}

func leftState(a *blocks.Affinity) string {
	if a.SoftDeleted {
		return "marked deleted"
	}
	return string(a.Effective())
}

// usedHandle: if a handle is gone, no block may refer to it.
func usedHandle(st *state.State, name, id string) error {
	if refs := st.HandleRefs(id); len(refs) > 0 {
		return repair.LeftBehind(blocks.Handles, name, "is missing, and %s is recorded under it", refs[0].Addr())
	}
	return nil
}

// loweredHandle: the handle of a freed address must be gone if no block refers to it. Otherwise it
// must count no more addresses than the blocks record.
func loweredHandle(st *state.State, id string) error {
	h := st.Handle(id)
	switch {
	case h == nil:
		return nil
	case h.SoftDeleted:
		return repair.LeftBehind(blocks.Handles, h.Name, "is left marked deleted")
	case len(st.HandleRefs(id)) == 0:
		return repair.LeftBehind(blocks.Handles, h.Name, "is left, and no block refers to it")
	case excess(st, id) > 0:
		wrong, _ := st.Miscounts(h)
		return repair.LeftBehind(blocks.Handles, h.Name, "is left with a count that differs from the blocks: %s", phrase.List(wrong))
	}
	return nil
}

// excess returns how many addresses a handle counts beyond those that blocks record under it.
func excess(st *state.State, id string) int {
	h := st.Handle(id)
	if h == nil {
		return 0
	}
	recorded := map[string]int{}
	for _, r := range st.HandleRefs(id) {
		recorded[r.Block.CIDR.String()]++
	}
	n := 0
	for _, c := range h.Blocks {
		n += max(0, c.Count-recorded[c.CIDR.String()])
	}
	return n
}

// asBefore reports whether a handle that was already marked deleted or miscounted before the step
// is unchanged or better. A release only lowers the count by one; other kinds of repair correct it.
func asBefore(before, now *state.State, s *repair.Step) bool {
	id := s.Guard(repair.GuardHandle)
	h, was := now.Handle(id), before.Handle(id)
	if h == nil || was == nil || h.UID() != was.UID() || h.SoftDeleted && !was.SoftDeleted {
		return false
	}
	wrong, _ := before.Miscounts(was)
	return (was.SoftDeleted || len(wrong) > 0) && excess(now, id) <= excess(before, id)
}

// hasReleasedBlock: an ownerless block must be deleted with its last address.
func hasReleasedBlock(st *state.State, s *repair.Step) error {
	for _, b := range st.IPBlocks {
		if b.UID() == s.Guard(repair.GuardBlockUID) && b.SoftDeleted && b.Used == 0 && b.Owner == (blocks.Owner{}) {
			return repair.LeftBehind(blocks.Blocks, b.Name, "is left marked deleted")
		}
	}
	return nil
}
