package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// slotStatus explains whether a node could claim a block that does not exist.
func (x *explainer) slotStatus(slot netip.Prefix, p *state.Pool) (text string, claimable bool) {
	gap, unread := x.Missing(blocks.Pools)
	others := slices.DeleteFunc(x.BlocksAt(slot), func(b *state.Block) bool { return b.CIDR == slot })
	switch {
	case p == nil && unread:
		return "its pool is not known: " + gap.String(), false
	case p == nil:
		return "it lies outside all pools", false
	case p.BlockSize < p.CIDR.Bits():
		return fmt.Sprintf("pool %s is smaller than one of its own blocks (/%d), so no block can be claimed in it", p.Name, p.BlockSize), false
	case !slot.IsValid() || slot.Bits() != p.BlockSize || !blocks.PrefixContains(p.CIDR, slot):
		return fmt.Sprintf("it is not one of the blocks of pool %s, which are /%d", p.Name, p.BlockSize), false
	case x.BlockMayCover(slot):
		return "a block that cannot be read may hold it", false
	case p.Disabled:
		return fmt.Sprintf("it cannot be claimed, as pool %s is disabled", p.Name), false
	case !p.HandsOut():
		return fmt.Sprintf("it cannot be claimed from pool %s: %s", p.Name, p.WhyClosed()), false
	case p.SelectorError() != nil:
		return fmt.Sprintf("it cannot be claimed, as a selector of pool %s cannot be parsed", p.Name), false
	case x.Reserved.Covers(slot):
		return fmt.Sprintf("it is wholly reserved by %s, so no node claims it", strings.Join(x.reservedBy(slot), ", ")), false
	case len(others) > 0:
		return fmt.Sprintf("it overlaps %s; Calico's allocator compares exact CIDRs only, and may claim it all the same", strings.Join(state.CIDRs(others), ", ")), true
	case !p.Allows(blocks.UseWorkload) && !p.Allows(blocks.UseTunnel):
		return "it is free to be claimed for LoadBalancer services", true
	case !p.Automatic:
		return fmt.Sprintf("it is free to be claimed for pods that ask for pool %s", p.Name), true
	}
	return "it is free to be claimed by any node that the pool selects", true
}

// absentState is slotStatus for a queried CIDR. If the CIDR is not a slot of its pool, it describes
// the blocks there.
func (x *explainer) absentState(p netip.Prefix, pool *state.Pool) string {
	text, _ := x.slotStatus(p, pool)
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

// noBlockSection describes a block that is not known to exist.
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
	_, claimable := x.slotStatus(slot, p)
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
	var names blocks.Names
	for i := range x.Nodes {
		if p.SelectsNode(&x.Nodes[i]) {
			names = append(names, x.Nodes[i].Name)
		}
	}
	return fmt.Sprintf("%d of %d nodes: %s", len(names), len(x.Nodes), names)
}

// poolLeftSection shows the free blocks and addresses of a pool.
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

// reservedBy names the reservations that overlap a CIDR.
func (x *explainer) reservedBy(p netip.Prefix) (out []string) {
	for i := range x.Reservations {
		r := &x.Reservations[i]
		if slices.ContainsFunc(r.CIDRs, p.Overlaps) {
			out = append(out, "ipreservation/"+r.Name)
		}
	}
	return out
}

// nextPod describes where the next pod of a node gets its address.
func (x *explainer) nextPod(n *state.NodeBlockStatus) string {
	switch {
	case x.Info.Locked:
		return "gets no address: the datastore is locked"
	case n.Unused > 0:
		return "gets an address of the node's own blocks"
	case n.Cause == state.CauseNone && n.NoBlock():
		return "makes the node claim a block"
	case n.Cause == state.CauseNone:
		return "makes the node claim another block: its own are full"
	}
	gets, why := "borrows an address", string(n.Cause)
	if n.Cause.PreventsAllocation() {
		gets = "gets no address"
	}
	if !n.NoBlock() {
		why = "the node's blocks are full, and " + why
	}
	return gets + ": " + why
}
