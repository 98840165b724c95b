package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// UnreadInPool counts the blocks that could not be decoded. Placed ones lie in the pool. Unplaced
// ones may lie in any pool, because not even their CIDR could be decoded.
func (st *State) UnreadInPool(p *Pool) (placed, unplaced int) {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() {
			unplaced++
		}
	}
	return len(p.unreadable), unplaced
}

// UnreadOfNode counts the blocks that could not be decoded and that a node owns, or may own
// because their owner could not be decoded either. The name "" counts blocks without an owner.
func (st *State) UnreadOfNode(name string) (n int) {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.OwnerKnown || g.Owner.Node() == name {
			n++
		}
	}
	return n
}

// DoubtOf explains why it is not known whether a node lacks a block, or cannot claim one, because
// an object that could not be decoded may prove the opposite. It returns "" if none may.
func (st *State) DoubtOf(n *NodeBlockStatus) string {
	if st.UnreadableNode(n.Host.Name) {
		return "the node cannot be read"
	}
	for _, g := range slices.Concat(st.Unreadable(blocks.Blocks), st.Unreadable(blocks.Affinities)) { // an affinity creates its block
		if (!g.OwnerKnown || g.Owner.Node() == n.Host.Name) && (!g.Prefix.IsValid() || blocks.FamilyOf(g.Prefix.Addr()) == n.Family) {
			return "its block may be among those that cannot be read"
		}
	}
	helps := func(c Cause) bool { return c == CauseNoAuto || c == CauseLimit }
	if _, missing := st.Missing(blocks.Affinities); missing && (len(st.Affinities) > 0 || helps(n.Cause) || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return helps(s.Cause) }) ||
		slices.ContainsFunc(n.Host.Blocks, func(b *Block) bool { return b.SoftDeleted })) {
		return "it may have an affinity whose block does not exist, and affinities were not read"
	}
	if g := st.firstGap(false, blocks.ClusterInfos); g != nil && slices.ContainsFunc(n.Host.Affinities, func(a *blocks.Affinity) bool { return a.Unlabelled }) {
		return fmt.Sprintf("whether Calico finds an affinity without labels depends on its version, which is not known: %s", g)
	}
	if g := st.Unreadable(blocks.Pods); len(st.Pools) == 0 && len(g) > 0 {
		return fmt.Sprintf("no pool exists, and pod %s, which cannot be read, may be a calico-node that has yet to create one", g[0].Name)
	} else if len(g) > 0 && len(n.Elsewhere) > 0 {
		return fmt.Sprintf("it has a block of another pool, which pod %s, which cannot be read, may ask for", g[0].Name)
	}
	for _, g := range st.Unreadable(blocks.Pools) {
		if !g.Prefix.IsValid() || blocks.FamilyOf(g.Prefix.Addr()) == n.Family {
			return fmt.Sprintf("pool %s cannot be read, and may serve it", g.Name)
		}
	}
	if n.Cause.Shortfall() || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return s.Cause.Shortfall() }) {
		for _, p := range n.atIssue {
			if doubt := st.slotDoubt(p); doubt != "" {
				return doubt
			}
		}
	}
	return ""
}

// slotDoubt explains why a pool may have blocks left that do not count as allocatable: empty
// blocks of other nodes, which Calico v3.32 and newer take.
func (st *State) slotDoubt(p *Pool) string {
	g := st.firstGap(false, blocks.ClusterInfos)
	placed, unplaced := st.UnreadInPool(p)
	switch takes := g != nil || st.takesBlocks(); {
	case g != nil && len(st.takeable(p)) > 0:
		return fmt.Sprintf("Calico v3.32 and newer take other nodes' empty blocks, and which release runs is not known: %s", g)
	case takes && placed+unplaced > 0:
		return "Calico v3.32 and newer take other nodes' empty blocks, and a block that cannot be read may be empty"
	}
	return ""
}

// Lacking returns the first gap in the given resources that prevents repairs: the resource was not
// read completely, or a reservation, which may exclude any address, could not be decoded. It
// returns nil if there is none.
func (st *State) Lacking(reads []blocks.Resource) *blocks.Gap {
	if g := st.FirstMissing(reads); g != nil {
		return g
	}
	if unread := st.Unreadable(blocks.Reservations); len(unread) > 0 && slices.Contains(reads, blocks.Reservations) {
		return &unread[0]
	}
	return nil
}

// WholeBar blocks a plan that depends on every object of the given resources, if one of the objects
// could not be read. If tolerated is true, tolerated gaps count, too, although they do not make a
// reading incomplete.
func (st *State) WholeBar(reads []blocks.Resource, tolerated bool) Bar {
	if g := st.firstGap(tolerated, reads...); g != nil {
		return Because(RetainNotRead, "it depends on every object, and one could not be read: %s", g)
	}
	return Bar{}
}

// firstGap returns the first gap in the given resources, of one object or all, or nil.
func (st *State) firstGap(tolerated bool, reads ...blocks.Resource) *blocks.Gap {
	i := slices.IndexFunc(st.Gaps, func(g blocks.Gap) bool { return (tolerated || !g.Tolerated) && slices.Contains(reads, g.Resource) })
	if i < 0 {
		return nil
	}
	return &st.Gaps[i]
}

// PoolMayCover reports whether a CIDR may lie in a pool that could not be decoded.
func (st *State) PoolMayCover(p netip.Prefix) bool {
	return slices.ContainsFunc(st.Unreadable(blocks.Pools), func(g blocks.Gap) bool { return !g.Prefix.IsValid() || g.Prefix.Overlaps(p) })
}
