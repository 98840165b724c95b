package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// slotOf returns the CIDR of the block that an address would lie in; invalid if
// it lies outside all pools.
func (x *explainer) slotOf(a netip.Addr) netip.Prefix {
	p := x.PoolOf(netip.PrefixFrom(a, a.BitLen()))
	if p == nil || p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}
	}
	slot, err := a.Prefix(p.BlockSize)
	if err != nil {
		return netip.Prefix{}
	}
	return slot
}

// slotState says, of a block that does not exist, whether a node could claim it.
func (x *explainer) slotState(slot netip.Prefix, p *state.Pool) (text string, claimable bool) {
	reserved := x.reservedBy(slot)
	others := x.overlapping(slot)
	switch {
	case p == nil && x.unread(blocks.Pools) != "":
		return "which pool it lies in is " + x.unread(blocks.Pools), false
	case p == nil:
		return "it lies outside all pools", false
	case p.BlockSize < p.CIDR.Bits():
		return fmt.Sprintf("pool %s is smaller than one of its own blocks (/%d), so that nothing can be claimed in it", p.Name, p.BlockSize), false
	case !slot.IsValid() || slot.Bits() != p.BlockSize || !blocks.PrefixContains(p.CIDR, slot):
		return fmt.Sprintf("pool %s is cut into blocks of /%d, of which it is none", p.Name, p.BlockSize), false
	case x.BlockMayCover(slot):
		return "a block that could not be understood may hold it", false
	case p.Disabled:
		return fmt.Sprintf("it cannot be claimed, as pool %s is disabled", p.Name), false
	case !p.HandsOut():
		return fmt.Sprintf("it cannot be claimed from pool %s: %s", p.Name, p.WhyClosed()), false
	case p.SelectorError() != nil:
		return fmt.Sprintf("it cannot be claimed, as a selector of pool %s cannot be parsed", p.Name), false
	case x.Reserved.Covers(slot):
		return fmt.Sprintf("it is reserved as a whole by %s, so that no node claims it", phrase.Each(reserved)), false
	case len(others) > 0:
		return fmt.Sprintf("it overlaps %s; Calico's allocator compares exact CIDRs only, and may claim it all the same", phrase.Each(state.CIDRs(others))), true
	case !p.Allows(blocks.UseWorkload) && !p.Allows(blocks.UseTunnel):
		return "it is free to be claimed for LoadBalancer services", true
	case !p.Automatic:
		return fmt.Sprintf("it is free to be claimed for pods that ask for pool %s", p.Name), true
	}
	return "it is free to be claimed by any node that the pool selects", true
}

// absentState is slotState for a CIDR that somebody asks for: of one that is no
// slot of its pool it says what lies there.
func (x *explainer) absentState(p netip.Prefix, pool *state.Pool) string {
	text, _ := x.slotState(p, pool)
	if pool == nil || pool.BlockSize < pool.CIDR.Bits() || p.Bits() == pool.BlockSize || !blocks.PrefixContains(pool.CIDR, p) {
		return text
	}
	if p.Bits() > pool.BlockSize {
		return fmt.Sprintf("%s; it lies within %s", text, x.slotOf(p.Addr()))
	}
	part := *pool.Pool
	part.CIDR = p
	n := blocks.PoolSlots(&part, state.Bare(pool.Blocks), x.Reserved)
	return fmt.Sprintf("%s; it spans %s of them: %s claimed, %s free, %s reserved", text, n.Capacity, n.Claimed, n.Free, n.Reserved)
}

// overlapping returns the blocks that overlap a CIDR and are not it.
func (x *explainer) overlapping(p netip.Prefix) (out []*state.Block) {
	for _, b := range x.IPBlocks {
		if b.CIDR != p && b.CIDR.Overlaps(p) {
			out = append(out, b)
		}
	}
	return out
}

// noBlockSection is about a block that does not exist.
func (x *explainer) noBlockSection(s *builder, slot netip.Prefix) {
	if !slot.IsValid() {
		return
	}
	p := x.PoolOf(slot)
	s.section("Block %s", slot)
	if why := x.unread(blocks.Blocks); why != "" {
		s.fact("", "block", why)
		return
	}
	s.fact("", "block", "does not exist")
	_, claimable := x.slotState(slot, p)
	s.fact("", "state", x.absentState(slot, p))
	if names := x.reservedBy(slot); len(names) > 0 {
		extent := "in part"
		if x.Reserved.Covers(slot) {
			extent = "as a whole"
		}
		s.fact(names[0], "reserved", extent+", by "+strings.Join(names, ", "))
	}
	if claimable && p.ServesWorkloads() {
		s.fact("", "could claim it", x.selectedText(p))
	}
	x.ownerSection(s, slot, nil)
}

// selectedText lists the nodes that a pool selects.
func (x *explainer) selectedText(p *state.Pool) string {
	if why := x.unread(blocks.Nodes); why != "" {
		return why
	}
	var names []string
	for i := range x.Nodes {
		if p.SelectsNode(&x.Nodes[i]) {
			names = append(names, x.Nodes[i].Name)
		}
	}
	switch {
	case len(names) == 0:
		return "none: the pool selects no node"
	case len(names) == len(x.Nodes):
		return fmt.Sprintf("all %s: %s", phrase.Plural(len(names), "node"), phrase.List(names))
	}
	return fmt.Sprintf("%d of %s: %s", len(names), phrase.Plural(len(x.Nodes), "node"), phrase.List(names))
}

// poolLeftSection says what a pool has left.
func (x *explainer) poolLeftSection(s *builder, p *state.Pool) {
	s.section("Left of pool %s", p.Name)
	if why := x.unread(blocks.Blocks); why != "" {
		s.fact("", "blocks", why)
		return
	}
	reclaim := ""
	if p.ReclaimableKnown && !p.Reclaimable.IsZero() {
		reclaim = fmt.Sprintf(", %s could be released", p.Reclaimable)
	}
	s.factf("", "blocks", "%s of %s claimed, %s left to claim%s", p.Slots.Claimed, p.Slots.Capacity, p.Slots.Allocatable, reclaim)
	s.factf("", "addresses", "%s of %s in use, %s available", p.Addrs.InUse, p.Addrs.Capacity, p.Addrs.Available)
}
