package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// block explains the block of a CIDR, or why there is none.
func (x *explainer) block(p netip.Prefix) Explained {
	b := x.BlockOf(p)
	if b == nil {
		return x.absentBlock(p)
	}
	s := newBuilder(state.BlockSubject(b))
	x.poolSection(s, p)
	x.blockSection(s, b)
	x.ownerSection(s, p, b)
	x.emptySection(s, b)
	x.fillSection(s, b)
	x.holderSections(s, b)
	x.blockHostsSection(s, p)
	x.blockFindings(s, p)
	x.findingRemedies(s)
	s.Summary = x.blockSummary(b)
	return s.done()
}

// absentBlock explains a CIDR without a block.
func (x *explainer) absentBlock(p netip.Prefix) Explained {
	s := newBuilder(state.Subject{Kind: state.KindBlock, CIDR: p.String()})
	x.poolSection(s, p)
	x.noBlockSection(s, p)
	if others := slices.DeleteFunc(x.BlocksAt(p), func(b *state.Block) bool { return b.CIDR == p }); len(others) > 0 {
		s.listed("Blocks that overlap it")
		for _, b := range others {
			s.factf(blockSource(b), b.CIDR.String(), "%s, %d in use", ownerWord(b.Owner), b.Used)
		}
	}
	x.blockFindings(s, p)
	x.findingRemedies(s)
	pool := x.PoolOf(p)
	state := x.absentState(p, pool)
	switch {
	case x.unread(blocks.Blocks) != "":
		s.Summary = "Whether there is such a block is " + x.unread(blocks.Blocks) + "."
	case x.BlockMayCover(p):
		s.Summary = fmt.Sprintf("Whether there is such a block is not known: %s.", state)
	default:
		s.Summary = fmt.Sprintf("No such block exists: %s.", state)
		if owners := x.claimants(p); owners != "" {
			s.Summary += " Owners of affinities to it: " + owners + "."
		}
	}
	return s.done()
}

// claimants names the owners of affinities to a CIDR.
func (x *explainer) claimants(p netip.Prefix) string {
	var names []string
	for _, a := range x.AffinitiesOf(p) {
		names = append(names, a.Owner.String())
	}
	return strings.Join(names, ", ")
}

// blockSection lists the fields of a block.
func (x *explainer) blockSection(s *builder, b *state.Block) {
	src := blockSource(b)
	s.section("Block %s", b.CIDR)
	s.fact(src, "in use", x.fillText(b))
	if b.Pool != nil && b.CIDR.Bits() != b.Pool.BlockSize {
		s.factf(src, "size", "/%d, and the pool's blocks are /%d", b.CIDR.Bits(), b.Pool.BlockSize)
	}
	if b.SoftDeleted {
		s.fact(src, "deleted", "marked deleted: a release was started")
	}
	for _, f := range b.Faults {
		s.fact(src, x.corrupt(), f)
	}
	if b.DeprecatedStrict {
		s.fact(src, "strictAffinity", "set on the block, where Calico ignores it")
	}
	s.fact(src, "created", b.Created)
	s.fact(src, "claimed", b.Claimed)
	if at, ok := b.LastWrite(); ok {
		s.fact(src, "last written", at)
	} else {
		s.fact(src, "last written", "not known: it carries no managedFields")
	}
	s.fact(src, "sequence", b.Sequence)
	for _, other := range x.BlocksAt(b.CIDR) {
		if other != b {
			s.fact(blockSource(other), "overlaps", ownedBlock(other))
		}
	}
}

// corrupt is the word for a block with contradictions: fields that were not read cause them, too.
func (x *explainer) corrupt() string {
	if x.unread(blocks.Blocks) != "" {
		return "incomplete"
	}
	return "corrupt"
}

// fillText describes how full a block is.
func (x *explainer) fillText(b *state.Block) string {
	free := len(b.Ordinals) - b.Used
	unused := x.Unused(b)
	out := fmt.Sprintf("%d of %d, %d free", b.Used, len(b.Ordinals), free)
	if unused < free {
		out += fmt.Sprintf(", %d of them reserved", free-unused)
	}
	return out
}

// ownerSection lists the owner of a block according to its own record and to the affinities of its
// CIDR. b is nil if the block does not exist.
func (x *explainer) ownerSection(s *builder, p netip.Prefix, b *state.Block) {
	if b == nil && len(x.AffinitiesOf(p)) == 0 && x.unread(blocks.Affinities) == "" {
		return // no one claims a block that does not exist
	}
	s.section("Owner of %s", p)
	if b != nil {
		s.fact(blockSource(b), "by the block", ownerWord(b.Owner))
	}
	affinities := x.AffinitiesOf(p)
	for _, a := range affinities {
		s.fact(sourceOf("blockaffinity", a.Meta), "by affinity", x.claimText(a, b))
	}
	switch why := x.unread(blocks.Affinities); {
	case why != "":
		s.fact("", "by affinity", why)
	case b == nil || b.Owner.Node() == "" || x.ClaimedBy(b, b.Owner.Node()):
	case x.AffinityMayExist(p, b.Owner.Node()):
		s.factf("", "by affinity", "not known: %s may have one that cannot be read", b.Owner.Node())
	default:
		s.factf("", "by affinity", "%s has none", b.Owner.Node())
	}
	var names []string
	if b != nil {
		names = append(names, b.Owner.Node())
	}
	for _, a := range affinities {
		names = append(names, a.Owner.Node())
	}
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			continue
		}
		if n := x.nodeNamed(name); n != nil {
			s.factf(nodeSource(n), "node "+name, "exists%s", readyText(n))
		} else {
			s.fact("", "node "+name, x.NoNode(name))
		}
	}
}

func readyText(n *blocks.Node) string {
	switch {
	case n.Ready:
		return ", and is ready"
	case n.NotReady:
		return ", and is not ready"
	}
	return ", and does not say whether it is ready"
}

// claimText compares an affinity with its block.
func (x *explainer) claimText(a *blocks.Affinity, b *state.Block) string {
	out := fmt.Sprintf("%s, %s", ownerWord(a.Owner), a.Effective())
	if a.SoftDeleted {
		out += ", marked deleted"
	}
	if a.Unlabelled {
		out += ", without the label by which newer Calico lists a node's affinities"
	}
	if x.unread(blocks.Blocks) != "" {
		return out
	}
	drops := ""
	if p := x.PoolOf(a.CIDR); p != nil {
		if stale := x.Routing.Stale(a, state.BareOrNil(b), p.Pool); stale.Drops {
			drops = "; " + stale.Text
		}
	}
	switch affinity.Classify(a, state.BareOrNil(b)) {
	case affinity.Confirmed:
		return out + "; the block agrees"
	case affinity.Unconfirmed:
		return out + "; the block agrees, so the node's next assignment confirms it"
	case affinity.NoBlock:
		if x.BlockMayCover(a.CIDR) {
			return out + "; its block may be among those that cannot be read"
		}
		return out + "; there is no such block" + drops
	default:
		return out + "; the block names " + b.Owner.String() + drops
	}
}

// emptySection gives the times of a block without allocations; its summary has the verdict.
func (x *explainer) emptySection(s *builder, b *state.Block) {
	if b.Used > 0 {
		return
	}
	s.section("Empty")
	r := &b.Releasability
	s.fact("", "must stay until", r.Due)
	if r.After != nil {
		s.fact("", "after that", "must stay: "+r.After.Reason)
	}
	s.fact(blockSource(b), "since at least", r.EmptySince)
}

// blockSummary summarises a block in a sentence or two.
func (x *explainer) blockSummary(b *state.Block) string {
	owner := "belongs to " + ownerWord(b.Owner)
	if b.Owner == (blocks.Owner{}) {
		owner = "belongs to no node"
	} else if x.vanished(b.Owner.Node()) {
		owner += ", which does not exist,"
	}
	out := fmt.Sprintf("It %s and has %d of %d addresses in use", owner, b.Used, len(b.Ordinals))
	switch {
	case len(b.Faults) > 0:
		return out + "; it is " + x.corrupt() + ": " + b.Faults[0] + "."
	case b.Used == 0 && b.Releasability.OK:
		return fmt.Sprintf("It %s and is empty: it could be released now.", owner)
	case b.Used == 0:
		return fmt.Sprintf("It %s and is empty; it must stay: %s.", owner, b.Releasability.Reason)
	}
	if n := x.borrowedFrom(b); len(n) > 0 {
		out += fmt.Sprintf(", %d of them borrowed by %s", len(n), borrowers(n))
	}
	return out + "."
}

// borrowedFrom returns the borrowed addresses of a block.
func (x *explainer) borrowedFrom(b *state.Block) (out []*state.Borrow) {
	for _, br := range x.Borrows {
		if br.Block == b {
			out = append(out, br)
		}
	}
	return out
}

func borrowers(bs []*state.Borrow) blocks.Names {
	return audit.Names(bs, func(b *state.Borrow) string { return b.User })
}
