package state

import "github.com/calico-audit/calico-audit/blocks"

// UnreadInPool counts the blocks that could not be decoded and lie in a pool, and those
// that lie in some pool: their CIDR could not be decoded either.
func (st *State) UnreadInPool(p *Pool) (placed, unplaced int) {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() {
			unplaced++
		}
	}
	return len(p.unreadable), unplaced
}

// UnreadOfNode counts the blocks that could not be decoded and that a node owns, or may own
// because their owner could not be decoded either. Blocks without an owner are those of "".
func (st *State) UnreadOfNode(name string) (n int) {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.OwnerKnown || g.Owner.Node() == name {
			n++
		}
	}
	return n
}
