package audit

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Condition is a problem of a block.
type Condition string

// The conditions of a block, the worst first. With any of the first three, no address can be
// assigned from the block safely, whatever it records.
const (
	// BlockCorrupt: the block contradicts itself.
	BlockCorrupt Condition = "corrupt"
	// BlockOverlap: the block overlaps another block.
	BlockOverlap Condition = "overlap"
	// BlockDeleted: the block is marked as deleted.
	BlockDeleted Condition = "deleted"
	// BlockDeadNode: the owner's node no longer exists. Never set if nodes could not be
	// read.
	BlockDeadNode Condition = "deadNode"
	// BlockNoOwner: the block has no owner.
	BlockNoOwner Condition = "noOwner"
)

// Broken reports whether a block with this condition is unsafe to assign from.
func (c Condition) Broken() bool {
	return c == BlockCorrupt || c == BlockOverlap || c == BlockDeleted
}

// Prefix returns the block's CIDR; the zero Prefix if it cannot be parsed.
func (b *BlockReport) Prefix() netip.Prefix {
	p, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return netip.Prefix{}
	}
	return p.Masked()
}

// OwnerNode returns the name of the node that owns the block; empty if the owner is not a
// node.
func (b *BlockReport) OwnerNode() string { return blocks.ParseOwner(b.Owner).Node() }

// Is reports whether the block has the given condition.
func (b *BlockReport) Is(c Condition) bool { return slices.Contains(b.Conditions, c) }

// Broken reports whether the block is unsafe to assign from.
func (b *BlockReport) Broken() bool { return slices.ContainsFunc(b.Conditions, Condition.Broken) }

// blockReports builds the reports of all blocks, by CIDR.
func blockReports(st *state.State) []BlockReport {
	lent := map[*state.Block][]*state.Borrow{}
	for _, br := range st.Borrows {
		lent[br.Block] = append(lent[br.Block], br)
	}
	overlaps := overlappingBlocks(st.IPBlocks)
	out := make([]BlockReport, 0, len(st.IPBlocks))
	for _, b := range st.IPBlocks {
		r := BlockReport{
			CIDR: b.CIDR.String(), Owner: b.Owner.Affinity(), InUse: b.Used, Available: st.Unused(b),
			Lent: len(lent[b]), Releasable: b.Releasability.OK,
		}
		if b.Pool != nil {
			r.Pool = b.Pool.Name
		}
		if r.Lent > 0 {
			r.LentTo = Names(lent[b], func(br *state.Borrow) string { return br.User })
		}
		for i := range b.Attributes {
			if b.Attributes[i].Cooling() {
				r.Cooling += sharing(b, i)
			}
		}
		for _, c := range []struct {
			is bool
			Condition
		}{
			{len(b.Faults) > 0, BlockCorrupt}, {overlaps[b], BlockOverlap}, {b.SoftDeleted, BlockDeleted},
			{st.NodesRead() && st.Vanished(b.Owner.Node()), BlockDeadNode}, {b.Owner == blocks.Owner{}, BlockNoOwner},
		} {
			if c.is {
				r.Conditions = append(r.Conditions, c.Condition)
			}
		}
		out = append(out, r)
	}
	return out
}

// sharing counts the ordinals with the given index of attributes.
func sharing(b *state.Block, attributes int) int {
	n := 0
	for _, o := range b.Ordinals {
		if int(o) == attributes {
			n++
		}
	}
	return n
}

// overlappingBlocks returns the blocks that overlap another. The input must be in CIDR
// order, so that a nested block follows the blocks around it.
func overlappingBlocks(all []*state.Block) map[*state.Block]bool {
	out := map[*state.Block]bool{}
	var open []*state.Block
	for _, b := range all {
		open = slices.DeleteFunc(open, func(o *state.Block) bool { return !o.CIDR.Overlaps(b.CIDR) })
		if len(open) > 0 {
			out[b] = true
		}
		for _, o := range open {
			out[o] = true
		}
		open = append(open, b)
	}
	return out
}

// reservationsIn returns the parts of a pool that IPReservations cover, sorted.
func reservationsIn(st *state.State, p *state.Pool) []string {
	var in []netip.Prefix
	for i := range st.Reservations {
		for _, c := range st.Reservations[i].CIDRs {
			switch {
			case blocks.PrefixContains(c, p.CIDR):
				in = append(in, p.CIDR)
			case blocks.PrefixContains(p.CIDR, c):
				in = append(in, c)
			}
		}
	}
	slices.SortFunc(in, blocks.ComparePrefixes)
	var out []string
	for _, c := range slices.Compact(in) {
		out = append(out, c.String())
	}
	return out
}

// filterBlocks keeps the blocks that overlap any of the given pools, and the usage of their
// addresses.
func (r *Report) filterBlocks(pools []string) {
	var in []netip.Prefix
	for i := range r.Pools {
		if p, err := netip.ParsePrefix(r.Pools[i].CIDR); err == nil && slices.Contains(pools, r.Pools[i].Name) {
			in = append(in, p)
		}
	}
	kept := make([]BlockReport, 0, len(r.Blocks))
	var indexes []int
	for i := range r.Blocks {
		p := r.Blocks[i].Prefix()
		if slices.ContainsFunc(in, p.Overlaps) {
			kept, indexes = append(kept, r.Blocks[i]), append(indexes, i)
		}
	}
	r.Blocks = kept
	if r.Usage != nil {
		r.Usage = r.Usage.of(indexes)
	}
}
