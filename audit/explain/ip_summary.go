package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// addressSummary summarises an address in a sentence or two.
func (x *explainer) addressSummary(a netip.Addr, users []user, ref state.AllocationRef, allocated bool) string {
	who := describe(users).String()
	b := x.CoveringBlock(a)
	if text, of := x.secondarySummary(a); of && b == nil && !allocated {
		return text
	}
	if floats := x.floatsOf(a); len(floats) > 0 && !allocated && len(users) == 0 {
		return fmt.Sprintf("Floating IP of %s%s.", floats, x.floatingText(a))
	}
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

// unallocatedNote ends the summary of an address that is in use although no block allocates it.
func (x *explainer) unallocatedNote(a netip.Addr, b *state.Block) string {
	single, other := state.IPPrefix(a), x.OtherIPAMAt(a)
	switch {
	case other != "":
		return "; " + other + "."
	case x.unread(blocks.Blocks) != "":
		return "; whether it is allocated is " + x.unread(blocks.Blocks) + "."
	case b != nil:
		return fmt.Sprintf(", although block %s lists it as free.", b.CIDR)
	case x.BlockMayCover(single):
		return "; a block that cannot be read may hold it."
	case x.PoolOf(single) != nil:
		return ", although no block records it."
	case x.unread(blocks.Pools) != "":
		return "; no block holds it, and its pool is " + x.unread(blocks.Pools) + "."
	}
	return ". It lies outside all pools: Calico's IPAM does not manage it."
}

// unusedSummary describes an allocated address that no pod or tunnel names.
func (x *explainer) unusedSummary(ref state.AllocationRef) string {
	i, b := ref.Ordinal, ref.Block
	attr := ref.Attributes()
	switch {
	case attr == nil && x.unread(blocks.Blocks) != "":
		return fmt.Sprintf("Allocated in block %s; to whom is %s.", b.CIDR, x.unread(blocks.Blocks))
	case attr == nil:
		return fmt.Sprintf("Block %s is corrupt: it allocates the address to attributes that do not exist.", b.CIDR)
	case attr.Cooling(), attr.WindowsReserved():
		return fmt.Sprintf("Not in use: %s, in %s.", strings.TrimPrefix(x.holder(b, i), "no one: "), ownedBlock(b))
	}
	out := fmt.Sprintf("Allocated to %s%s", x.holder(b, i), phrase.OnNode(attr.Node))
	if attr.Tunnel() {
		out = "Allocated to " + x.holder(b, i)
	}
	if g := x.FirstMissing(useReads); g != nil {
		return out + ". Whether anything uses it is not known: " + g.String() + "."
	}
	v := x.Classify(ref)
	if v.Unknown {
		return out + ", and who owns it is not known: " + v.Why() + "."
	}
	if v.Owned {
		return out + ": " + v.Why() + "."
	}
	return out + fmt.Sprintf(", and nothing seems to use it: %s.", v.Why())
}

// freeSummary describes an address that its block does not allocate and that has no user.
func (x *explainer) freeSummary(a netip.Addr, b *state.Block) string {
	tail := ""
	if g := x.FirstMissing(useReads); g != nil {
		tail = " It may be in use all the same, because not everything was read: " + g.String() + "."
	}
	if x.Reserved.Contains(a) {
		return fmt.Sprintf("Free and reserved: %s holds it, and automatic assignment skips it.%s", ownedBlock(b), tail)
	}
	return fmt.Sprintf("Free: it lies in %s, which has not allocated it.%s", ownedBlock(b), tail)
}

// unknownSummary describes an address that no object refers to.
func (x *explainer) unknownSummary(a netip.Addr) string {
	switch slot, p := x.SlotOf(a), x.PoolOf(state.IPPrefix(a)); {
	case x.unread(blocks.Pools) != "" && p == nil:
		return "No object that was read names it; its pool is " + x.unread(blocks.Pools) + "."
	case p == nil:
		return "Outside all pools: no object of Calico's IPAM names it."
	case x.unread(blocks.Blocks) != "":
		return fmt.Sprintf("It lies in pool %s; whether it is allocated is %s.", p.Name, x.unread(blocks.Blocks))
	case x.BlockMayCover(state.IPPrefix(a)):
		return fmt.Sprintf("It lies in pool %s; a block that cannot be read may hold it.", p.Name)
	default:
		who := "Not in use"
		if g := x.FirstMissing(useReads); g != nil {
			who = "Whether anything uses it is not known: " + g.String()
		}
		if names := x.reservedBy(state.IPPrefix(a)); len(names) > 0 {
			who += ", and it is reserved by " + strings.Join(names, ", ")
		}
		if !slot.IsValid() {
			state, _ := x.slotStatus(slot, p)
			return fmt.Sprintf("%s. It lies in pool %s: %s.", who, p.Name, state)
		}
		state, _ := x.slotStatus(slot, p)
		return fmt.Sprintf("%s. It lies in pool %s, and its block %s does not exist: %s.", who, p.Name, slot, state)
	}
}
