package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// fewHandles is the largest plausible number of missing handles in files without any.
const fewHandles = 3

// HandlesLeftOut reports whether files were probably made without handles: they have none, but
// blocks refer to more than a few. referred is the number of handles referred to.
func (st *State) HandlesLeftOut() (referred int, leftOut bool) {
	referred = len(st.own.known)
	return referred, !st.Cluster.Live && len(st.Handles) == 0 && referred > fewHandles
}

// Miscounts lists the blocks for which a handle's count differs from the number of addresses
// recorded under it.
func Miscounts(h *blocks.Handle, refs []AllocationRef) (out blocks.Names) {
	if len(h.Blocks) == 1 && h.Blocks[0].Count == len(refs) && !slices.ContainsFunc(refs, func(r AllocationRef) bool { return r.Block.CIDR != h.Blocks[0].CIDR }) {
		return nil // nearly every handle
	}
	have := map[netip.Prefix]int{}
	for _, r := range refs {
		have[r.Block.CIDR]++
	}
	cidrs := make([]netip.Prefix, 0, len(have))
	said := map[netip.Prefix]int{}
	for c := range have {
		cidrs = append(cidrs, c)
	}
	for _, c := range h.Blocks {
		said[c.CIDR] += c.Count
		if have[c.CIDR] == 0 {
			cidrs = append(cidrs, c.CIDR)
		}
	}
	slices.SortFunc(cidrs, blocks.ComparePrefixes)
	for _, c := range slices.Compact(cidrs) {
		if said[c] != have[c] {
			out = append(out, fmt.Sprintf("%s: the handle counts %d, blocks record %d", c, said[c], have[c]))
		}
	}
	return out
}

// Miscounts lists the blocks for which a handle's count differs from the number of addresses
// recorded under it, and returns the correct counts, in CIDR order.
func (st *State) Miscounts(h *blocks.Handle) (wrong []string, right []blocks.HandleCount) {
	refs := st.HandleRefs(h.ID)
	have := map[netip.Prefix]int{}
	for _, r := range refs {
		have[r.Block.CIDR]++
	}
	for c, n := range have {
		right = append(right, blocks.HandleCount{CIDR: c, Count: n})
	}
	slices.SortFunc(right, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return Miscounts(h, refs), right
}

// HandleMayBeUsed reports whether a block that could not be decoded, or that contradicts itself,
// may refer to a handle.
func (st *State) HandleMayBeUsed(h *blocks.Handle) bool {
	if len(st.own.beyond) > 0 && st.own.beyond[strings.ToLower(h.ID)] {
		return true
	}
	for _, c := range h.Blocks {
		if !st.own.corrupt {
			break
		}
		if b := st.BlockOf(c.CIDR); b != nil && len(b.Faults) > 0 {
			return true
		}
	}
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() || len(h.Blocks) == 0 {
			return true
		}
		for _, c := range h.Blocks {
			if c.CIDR == g.Prefix {
				return true
			}
		}
	}
	return false
}
