package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// ip explains an address.
func (x *explainer) ip(a netip.Addr) Explained {
	ref, allocated := x.Allocation(a)
	users := x.usersOf(a)
	s := newSheet(ipSubject(a, x.addressNode(a, ref, allocated)))

	single := netip.PrefixFrom(a, a.BitLen())
	x.poolSection(s, single)
	covering := x.covering(a)
	for _, b := range covering {
		x.blockSection(s, b)
		x.ownerSection(s, b.CIDR, b)
		x.allocationSection(s, b, a)
	}
	if len(covering) == 0 {
		x.noBlockSection(s, x.slotOf(a))
	}
	if attr := ref.attributesIf(allocated); attr != nil && attr.Handle != "" && !attr.WindowsReserved() {
		x.handleSection(s, attr.Handle)
	}
	x.usedBySection(s, a, users, ref, allocated)
	if allocated {
		x.borrowedSection(s, ref)
	}
	x.addressFindings(s, a, ref, allocated)
	x.addressOutlook(s, a, users, ref, allocated)
	s.Summary = x.addressSummary(a, users, ref, allocated)
	return s.done()
}

// attributesIf returns the attributes of an allocation that there is.
func (r AllocationRef) attributesIf(allocated bool) *blocks.Attributes {
	if !allocated {
		return nil
	}
	return r.Attributes()
}

// addressNode returns the node that uses an address, as far as anything tells.
func (x *explainer) addressNode(a netip.Addr, ref AllocationRef, allocated bool) string {
	attr := ref.attributesIf(allocated)
	switch w := x.LiveUser(a, attr); {
	case len(x.tunnels[a]) > 0:
		return x.tunnels[a][0].node.Name
	case w != nil:
		return w.Node
	case attr != nil:
		return attr.Node
	}
	return ""
}

// covering returns the blocks that contain an address, the most specific first.
func (x *explainer) covering(a netip.Addr) (out []*Block) {
	for _, b := range x.IPBlocks {
		if b.CIDR.Contains(a) {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(b, c *Block) int { return c.CIDR.Bits() - b.CIDR.Bits() })
	return out
}

// poolsAround returns the pools that contain a CIDR or overlap it, the one that
// it counts to first.
func (x *explainer) poolsAround(p netip.Prefix) (out []*Pool) {
	main := x.PoolOf(p)
	for _, q := range x.Pools {
		switch {
		case q == main:
			out = slices.Insert(out, 0, q)
		case q.CIDR.Overlaps(p):
			out = append(out, q)
		}
	}
	return out
}

// poolSection says which pool a CIDR lies in.
func (x *explainer) poolSection(s *sheet, p netip.Prefix) {
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

// allocationSection says what a block records of an address.
func (x *explainer) allocationSection(s *sheet, b *Block, a netip.Addr) {
	s.section("Allocation")
	src := blockSource(b)
	i, ok := b.Ordinal(a)
	if !ok {
		s.fact(src, "state", "none: the block records fewer addresses than its CIDR has")
		return
	}
	s.factf(src, "ordinal", "%d of %d", i, len(b.Ordinals))
	s.fact(src, "state", x.ordinalState(b, i))
	if names := x.reservedBy(netip.PrefixFrom(a, a.BitLen())); len(names) > 0 {
		s.factf(names[0], "reserved", "by %s: automatic assignment skips it", strings.Join(names, ", "))
	}
	if attr := b.allocated(i); attr != nil {
		s.fact(src, "handle", attr.Handle)
		if !attr.HasHandle && !attr.Cooling() {
			s.fact(src, "handle", "none: nothing but the address itself names the allocation")
		}
		s.fact(src, "pod", joinNonEmpty(attr.Namespace, attr.Pod))
		s.fact(src, "service", joinNonEmpty(attr.Namespace, attr.Service))
		s.fact(src, "node", attr.Node)
		s.fact(src, "type", attr.Type)
		if attr.VM {
			s.fact(src, "virtual machine", "yes: KubeVirt attributes are present")
		}
		s.fact(src, "assigned", FormatTime(attr.Assigned))
	}
	if n, ok := b.SequenceAt(i); ok && b.Ordinals[i] != blocks.Free {
		s.factf(src, "sequence", "allocated at %d; the block is at %d", n, b.Sequence)
	} else if b.Ordinals[i] != blocks.Free {
		s.factf(src, "sequence", "none recorded for the address; the block is at %d", b.Sequence)
	}
}

// ordinalState says how an ordinal stands, and for a free one when it would be
// handed out.
func (x *explainer) ordinalState(b *Block, i int) string {
	attr := b.At(i)
	switch {
	case b.Ordinals[i] == blocks.Free:
		q := slices.Index(b.Unallocated, int32(i))
		switch {
		case q < 0:
			return "free, but not queued for assignment: the block is corrupt"
		case x.reserved.Contains(b.Address(i)):
			return "free, and reserved"
		}
		before := 0
		for _, u := range b.Unallocated[:q] {
			if !x.reserved.Contains(b.Address(int(u))) {
				before++
			}
		}
		if before == 0 {
			return "free, and the next that the block hands out"
		}
		return fmt.Sprintf("free; the block hands out %d others first", before)
	case attr == nil:
		return "allocated to attributes that do not exist: the block is corrupt"
	case attr.Cooling():
		return "cooling down: released at " + FormatTime(attr.Released) + ", and not handed out yet"
	case attr.WindowsReserved():
		return "kept back: Windows nodes do not hand out the first addresses and the last of a block"
	}
	return "allocated"
}

// reservedBy names the reservations that touch a CIDR.
func (x *explainer) reservedBy(p netip.Prefix) (out []string) {
	for i := range x.Reservations {
		r := &x.Reservations[i]
		if slices.ContainsFunc(r.CIDRs, p.Overlaps) {
			out = append(out, "ipreservation/"+r.Name)
		}
	}
	return out
}

// borrowedSection says whether an address is used outside its owner's node, and
// what that means for its traffic.
func (x *explainer) borrowedSection(s *sheet, ref AllocationRef) {
	b := ref.Block
	br := x.borrowOf(ref)
	s.section("Borrowed")
	owner := b.Owner.Node()
	if br == nil {
		switch attr := ref.Attributes(); {
		case owner == "" && b.Owner.Kind == blocks.NoOwner:
			s.fact("", "borrowed", "no: the block belongs to nobody, and each address in it is routed by itself")
		case owner == "" || attr == nil || attr.Node == "" || attr.WindowsReserved():
		default:
			s.factf("", "borrowed", "no: it is used on %s, which owns the block", owner)
		}
		return
	}
	s.factf("", "borrowed", "yes: it is used on %s, and the block belongs to %s%s", br.User, br.Owner, x.byRecord(br))
	s.fact("", "traffic", x.trafficText(br))
}

// byRecord says that a borrow is known by the allocation alone, pods not having
// been read.
func (x *explainer) byRecord(br *Borrow) string {
	if br.Workload == nil && !br.Tunnel && x.unread(blocks.Pods) != "" {
		return ", by the allocation's record (pods were not read)"
	}
	return ""
}

// borrowOf returns the borrow of an allocation, or nil.
func (x *explainer) borrowOf(ref AllocationRef) *Borrow {
	for _, br := range x.Borrows {
		if br.Block == ref.Block && br.Addr == ref.Addr() {
			return br
		}
	}
	return nil
}

// trafficText says what becomes of traffic to a borrowed address on the owner.
func (x *explainer) trafficText(br *Borrow) string {
	if br.Block.Pool == nil {
		return "not known: the block lies in no pool"
	}
	p := affinity.PredictBorrowed(x.Snapshot, br.Block.Pool.Pool)
	if p.Fate == affinity.Unknown {
		return "not known: " + strings.TrimPrefix(p.Reason, "not known because ")
	}
	return fmt.Sprintf("%s, when it reaches %s: %s", fateText(p.Fate), br.Owner, p.Reason)
}

// fateText is a fate in a word or two.
func fateText(f affinity.Fate) string {
	if f == affinity.Unknown {
		return "not known"
	}
	return f.String()
}

// drops tells whether a borrowed address's owner is predicted to drop traffic to
// it.
func (x *explainer) drops(br *Borrow) bool {
	return br.Block.Pool != nil && affinity.PredictBorrowed(x.Snapshot, br.Block.Pool.Pool).Fate == affinity.Dropped
}

// trafficNote is trafficText for lists, whose reason stands elsewhere.
func (x *explainer) trafficNote(br *Borrow) string {
	if x.drops(br) {
		return "; " + br.Owner + " drops traffic to it"
	}
	return ""
}

// addressSummary answers what an address is in a sentence or two.
func (x *explainer) addressSummary(a netip.Addr, users []user, ref AllocationRef, allocated bool) string {
	who := each(describe(users))
	b := x.coveringBlock(a)
	switch {
	case allocated && allPast(users):
		return fmt.Sprintf("Allocated to %s; only %s, names it.", x.holder(ref.Block, ref.Ordinal), who)
	case allocated && len(users) > 0:
		out := fmt.Sprintf("Used by %s.", who)
		if br := x.borrowOf(ref); br != nil {
			out += fmt.Sprintf(" It is borrowed: its block %s belongs to %s", br.Block.CIDR, br.Owner)
			if x.drops(br) {
				out += ", which drops traffic to it"
			}
			out += "."
		}
		return out
	case allocated:
		return x.unusedSummary(ref)
	case len(users) > 0:
		return fmt.Sprintf("Used by %s%s", who, x.unallocatedNote(a, b))
	case b != nil:
		return x.freeSummary(a, b)
	}
	return x.unknownSummary(a)
}

// unallocatedNote ends the summary of an address that something uses and no block
// allocates.
func (x *explainer) unallocatedNote(a netip.Addr, b *Block) string {
	single := netip.PrefixFrom(a, a.BitLen())
	switch {
	case x.unread(blocks.Blocks) != "":
		return "; whether it is allocated is " + x.unread(blocks.Blocks) + "."
	case b != nil:
		return fmt.Sprintf(", though block %s calls it free.", b.CIDR)
	case x.blockMayCover(single):
		return "; a block that could not be understood may hold it."
	case x.PoolOf(single) != nil:
		return ", though no block holds it."
	case x.unread(blocks.Pools) != "":
		return "; no block holds it, and which pool it lies in is " + x.unread(blocks.Pools) + "."
	}
	return ". It lies outside all pools: Calico's IPAM has nothing to do with it."
}

// unusedSummary is about an address that is allocated and that no pod or tunnel
// names.
func (x *explainer) unusedSummary(ref AllocationRef) string {
	i, b := ref.Ordinal, ref.Block
	attr := ref.Attributes()
	switch {
	case attr == nil:
		return fmt.Sprintf("Block %s is corrupt: it allocates the address to attributes that do not exist.", b.CIDR)
	case attr.Cooling(), attr.WindowsReserved():
		return fmt.Sprintf("Not in use: %s, in block %s of %s.", strings.TrimPrefix(x.holder(b, i), "nobody: "), b.CIDR, ownerText(b.Owner))
	}
	out := fmt.Sprintf("Allocated to %s%s", x.holder(b, i), nodePhrase(attr.Node))
	if attr.Tunnel() {
		out = "Allocated to " + x.holder(b, i)
	}
	if g := x.firstMissing(useNeeds); g != nil {
		return out + ". Whether anything uses it is not known: " + g.String() + "."
	}
	v := x.Judge(ref)
	if v.Owned {
		return out + ": " + v.Why + "."
	}
	return out + fmt.Sprintf(", and nothing seems to use it: %s.", v.Why)
}

// freeSummary is about an address that its block does not allocate, and that
// nothing uses.
func (x *explainer) freeSummary(a netip.Addr, b *Block) string {
	tail := ""
	if g := x.firstMissing(useNeeds); g != nil {
		tail = " Whether anything uses it all the same is not known: " + g.String() + "."
	}
	if x.reserved.Contains(a) {
		return fmt.Sprintf("Free and reserved: block %s of %s holds it, and automatic assignment skips it.%s", b.CIDR, ownerText(b.Owner), tail)
	}
	return fmt.Sprintf("Free: it lies in block %s of %s, which has not allocated it.%s", b.CIDR, ownerText(b.Owner), tail)
}

// unknownSummary is about an address that nothing knows.
func (x *explainer) unknownSummary(a netip.Addr) string {
	switch slot, p := x.slotOf(a), x.PoolOf(netip.PrefixFrom(a, a.BitLen())); {
	case x.unread(blocks.Pools) != "" && p == nil:
		return "Nothing seen names it; which pool it lies in is " + x.unread(blocks.Pools) + "."
	case p == nil:
		return "Outside all pools: nothing of Calico's IPAM names it."
	case x.unread(blocks.Blocks) != "":
		return fmt.Sprintf("It lies in pool %s; whether it is allocated is %s.", p.Name, x.unread(blocks.Blocks))
	case x.blockMayCover(netip.PrefixFrom(a, a.BitLen())):
		return fmt.Sprintf("It lies in pool %s; a block that could not be understood may hold it.", p.Name)
	default:
		who := "Nobody uses it"
		if g := x.firstMissing(useNeeds); g != nil {
			who = "Whether anything uses it is not known: " + g.String()
		}
		if names := x.reservedBy(netip.PrefixFrom(a, a.BitLen())); len(names) > 0 {
			who += ", and it is reserved by " + each(names)
		}
		if !slot.IsValid() {
			state, _ := x.slotState(slot, p)
			return fmt.Sprintf("%s. It lies in pool %s: %s.", who, p.Name, state)
		}
		state, _ := x.slotState(slot, p)
		return fmt.Sprintf("%s. It lies in pool %s, and its block %s does not exist: %s.", who, p.Name, slot, state)
	}
}
