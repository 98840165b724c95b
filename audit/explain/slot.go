package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// absentState is [state.State.SlotStatus] for a CIDR that somebody asks for: of one that is no
// slot of its pool it says what lies there.
func (x *explainer) absentState(p netip.Prefix, pool *state.Pool) string {
	text, _ := x.SlotStatus(p, pool)
	if pool == nil || pool.BlockSize < pool.CIDR.Bits() || p.Bits() == pool.BlockSize || !blocks.PrefixContains(pool.CIDR, p) {
		return text
	}
	if p.Bits() > pool.BlockSize {
		return fmt.Sprintf("%s; it lies within %s", text, x.SlotOf(p.Addr()))
	}
	part := *pool.Pool
	part.CIDR = p
	n := blocks.PoolSlots(&part, pool.Occupying(pool.Blocks), x.Reserved)
	return fmt.Sprintf("%s; it spans %s of them: %s claimed, %s free, %s reserved", text, n.Capacity, n.Claimed, n.Free, n.Reserved)
}

// overlapping returns the blocks that overlap a CIDR and are not it.
func (x *explainer) overlapping(p netip.Prefix) []*state.Block {
	return slices.DeleteFunc(x.BlocksAt(p), func(b *state.Block) bool { return b.CIDR == p })
}

// noBlockSection is about a block that does not exist, as far as is known.
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
	known := "does not exist"
	if x.BlockMayCover(slot) {
		known = "not known"
	}
	s.fact("", "block", known)
	_, claimable := x.SlotStatus(slot, p)
	s.fact("", "state", x.absentState(slot, p))
	if names := x.ReservedBy(slot); len(names) > 0 {
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
	if p.ReleasableKnown && !p.Releasable.IsZero() {
		reclaim = fmt.Sprintf(", %s could be released", p.Releasable)
	}
	n := x.numbersOf(p)
	s.factf("", "blocks", "%s of %s claimed, %s left to claim%s", n.claimed, p.Slots.Capacity, n.allocatable, reclaim)
	s.factf("", "addresses", "%s of %s in use, %s available", n.inUse, p.Addrs.Capacity, n.available)
}
