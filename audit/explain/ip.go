package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// ip explains an address.
func (x *explainer) ip(a netip.Addr) Explained {
	ref, allocated := x.Allocation(a)
	users := x.usersOf(a)
	s := newBuilder(state.IPSubject(a, x.addressNode(a, ref, allocated)))

	single := state.IPPrefix(a)
	x.poolSection(s, single)
	x.secondarySection(s, a)
	covering := x.covering(a)
	for _, b := range covering {
		x.blockSection(s, b)
		x.ownerSection(s, b.CIDR, b)
		x.allocationSection(s, b, a)
	}
	if len(covering) == 0 {
		x.noBlockSection(s, x.SlotOf(a))
	}
	if attr := ref.AttributesIf(allocated); attr != nil && attr.Handle != "" && !attr.WindowsReserved() {
		x.handleSection(s, attr.Handle)
	}
	x.usedBySection(s, a, users, ref, allocated)
	if allocated {
		x.borrowedSection(s, ref)
	}
	var owners []string
	for _, b := range covering {
		owners = append(owners, b.Owner.Node())
	}
	x.hostsSection(s, a, owners)
	x.addressFindings(s, a, ref, allocated)
	if br := x.borrowOf(ref); br != nil {
		x.borrowRemedies(s, br)
	}
	x.findingRemedies(s)
	s.Summary = x.addressSummary(a, users, ref, allocated)
	return s.done()
}

// poolSection names the pool that a CIDR lies in.
func (x *explainer) poolSection(s *builder, p netip.Prefix) {
	pools := x.poolsAround(p)
	s.section("Pool")
	if why := x.unread(blocks.Pools); why != "" && len(pools) == 0 {
		s.fact("", "pool", why)
		return
	}
	if len(pools) == 0 {
		s.fact("", "pool", "none: no pool contains it")
		return
	}
	x.poolFacts(s, pools[0])
	for _, q := range pools[1:] {
		s.factf(poolSource(q), "also in", "%s, %s: pools overlap", q.Name, q.CIDR)
	}
	x.poolLeftSection(s, pools[0])
}

// allocationSection shows a block's record of an address.
func (x *explainer) allocationSection(s *builder, b *state.Block, a netip.Addr) {
	s.section("Allocation")
	src := blockSource(b)
	i, ok := b.Ordinal(a)
	if !ok {
		s.fact(src, "state", "none: the block records fewer addresses than its CIDR has")
		return
	}
	s.factf(src, "ordinal", "%d of %d", i, len(b.Ordinals))
	s.fact(src, "state", x.ordinalState(b, i))
	if names := x.reservedBy(state.IPPrefix(a)); len(names) > 0 {
		s.factf(names[0], "reserved", "by %s: automatic assignment skips it", strings.Join(names, ", "))
	} else if b.Ordinals[i] == blocks.Free {
		s.fact(src, "handed out to", x.takers(b))
	}
	if attr := allocated(b, i); attr != nil {
		s.fact(src, "handle", attr.Handle)
		if !attr.HasHandle && !attr.Cooling() {
			s.fact(src, "handle", "none: only the address identifies the allocation")
		}
		s.fact(src, "pod", phrase.FullName(attr.Namespace, attr.Pod))
		s.fact(src, "service", phrase.FullName(attr.Namespace, attr.Extras().Service))
		s.fact(src, "node", attr.Node)
		s.fact(src, "type", attr.Extras().Type)
		if namespace, vm, isVM := attr.VMOf(); isVM {
			s.fact(src, "virtual machine", cmp.Or(phrase.FullName(namespace, vm), "unnamed"))
		}
		s.fact(src, "assigned", attr.Assigned)
	}
	if n, ok := b.SequenceAt(i); ok && b.Ordinals[i] != blocks.Free {
		s.factf(src, "sequence", "allocated at %d; the block is at %d", n, b.Sequence)
	} else if b.Ordinals[i] != blocks.Free {
		s.factf(src, "sequence", "none recorded for the address; the block is at %d", b.Sequence)
	}
}

// takers names the pods that get a block's free addresses.
func (x *explainer) takers(b *state.Block) string {
	switch owner := b.Owner.Node(); {
	case x.unread(blocks.IPAMConfigs) != "" && (owner != "" || b.Owner.Kind == blocks.NoOwner):
		return "whether pods may borrow it is " + x.unread(blocks.IPAMConfigs)
	case owner != "" && x.IPAM.StrictAffinity:
		return "pods on " + owner + " only: strict affinity is on"
	case owner != "":
		return "pods on " + owner + ", and pods that borrow"
	case b.Owner.Kind == blocks.NoOwner && x.IPAM.StrictAffinity:
		return "no pod: the block has no owner, and strict affinity is on"
	case b.Owner.Kind == blocks.NoOwner:
		return "pods that borrow: the block has no owner"
	}
	return ""
}

// ordinalState describes an ordinal and, if it is free, its place in the allocation order.
func (x *explainer) ordinalState(b *state.Block, i int) string {
	attr := b.At(i)
	switch {
	case b.Ordinals[i] == blocks.Free:
		q := slices.Index(b.Unallocated, int32(i))
		switch {
		case q < 0:
			return "free, but not queued for assignment: the block is corrupt"
		case x.Reserved.Contains(b.Address(i)):
			return "free, and reserved"
		}
		before := 0
		for _, u := range b.Unallocated[:q] {
			if !x.Reserved.Contains(b.Address(int(u))) {
				before++
			}
		}
		if before == 0 {
			return "free, and the next that the block hands out"
		}
		return fmt.Sprintf("free; the block hands out %d others first", before)
	case attr == nil && x.unread(blocks.Blocks) != "":
		return "allocated; its attributes were not read"
	case attr == nil:
		return "allocated to attributes that do not exist: the block is corrupt"
	case attr.Cooling():
		return "cooling down (ipCooldownSeconds): released at " + attr.Extras().Released.String() + ", and not handed out yet"
	case attr.WindowsReserved():
		return "reserved: Windows nodes assign neither the first addresses of a block nor its last"
	}
	return "allocated"
}
