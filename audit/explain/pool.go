package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/scope"
	"github.com/calico-audit/calico-audit/blocks"
)

// pool explains a pool.
func (x *explainer) pool(p *state.Pool) Explained {
	s := newBuilder(state.PoolSubject(p))
	s.section("Pool")
	x.poolFacts(s, p)
	s.fact(poolSource(p), "asked for", x.askersText(p))
	s.fact(poolSource(p), "podCIDRs", x.podCIDRsText(p))
	for _, q := range x.Pools {
		if q != p && q.CIDR.Overlaps(p.CIDR) {
			s.factf(poolSource(q), "overlaps", "pool %s, %s", q.Name, q.CIDR)
		}
	}
	s.fact(poolSource(p), "created", p.Created)
	x.poolNumbers(s, p)
	x.poolNodesSection(s, p)
	x.poolOwnersSection(s, p)
	x.poolReservedSection(s, p)
	x.poolLooseSection(s, p)
	x.poolFindings(s, p)
	x.poolRemedy(s, p)
	s.Summary = x.poolSummary(p)
	return s.done()
}

// askersText lists the namespaces and pods that ask for a pool by annotation. If other pods also
// get its addresses, it adds that.
func (x *explainer) askersText(p *state.Pool) string {
	who := slices.Concat(scope.Namespaces(x.State, p), scope.Pods(x.State, p))
	if len(who) == 0 {
		return ""
	}
	text := "by " + who.String()
	if scope.ServesAnyone(x.State, p) {
		text += "; pods that ask for no pool get its addresses, too, unless its assignmentMode is Manual (before v3.30: its nodeSelector !all())"
	}
	return text
}

// podCIDRsText explains that a pool is outside the podCIDRs of its nodes; empty if it is not.
func (x *explainer) podCIDRsText(p *state.Pool) string {
	outside := scope.Outside(x.State, p)
	if len(outside) == 0 {
		return ""
	}
	return "the pool is outside those of its nodes, " + outside.String() + ": unless kube-proxy's clusterCIDR contains it, pods reach Services from their node's address, and network policies do not match them" + scope.NotCreated(x.State, p)
}

// poolNumbers lists the pool's counts.
func (x *explainer) poolNumbers(s *builder, p *state.Pool) {
	s.section("Numbers")
	if why := x.unread(blocks.Blocks); why != "" {
		s.fact("", "blocks", why)
		return
	}
	a, b, n := p.Addrs, p.Slots, x.numbersOf(p)
	s.factf("", "addresses", "%s; %s in use, %s reserved, %s available", a.Capacity, n.inUse, a.Reserved, n.available)
	s.factf("", "blocks", "%s; %s claimed, %s free, %s reserved", b.Capacity, n.claimed, n.free, b.Reserved)
	s.fact("", "left to claim", n.allocatable)
	if p.ReleasableKnown {
		s.factf("", "releasable", "%s%s", p.Releasable, releasableNote(p))
	} else if g := x.Lacking(state.ReleaseReads); g != nil {
		s.fact("", "releasable", "not known: "+g.String())
	}
	if x.unread(blocks.Nodes) == "" && p.ServesWorkloads() && p.Automatic {
		s.factf("", "needed", "%s, when its nodes are full of pods", p.Needed)
	}
}

// poolTexts are a pool's numbers, or bounds on them if a block could not be decoded.
type poolTexts struct{ inUse, available, claimed, free, allocatable string }

func (x *explainer) numbersOf(p *state.Pool) poolTexts {
	out := poolTexts{p.Addrs.InUse.String(), p.Addrs.Available.String(), p.Slots.Claimed.String(), p.Slots.Free.String(), p.Slots.Allocatable.String()}
	placed, unplaced := x.UnreadInPool(p)
	if placed+unplaced > 0 {
		out.inUse, out.available = "at least "+out.inUse, "at most "+out.available
	}
	if unplaced > 0 {
		out.claimed, out.free, out.allocatable = "at least "+out.claimed, "at most "+out.free, "at most "+out.allocatable
	}
	if placed+unplaced > 0 && blocks.CalicoAtLeast(x.Cluster.CalicoVersion, 3, 32) {
		out.allocatable = "an unknown number" // the allocator may take an empty block of another node
	}
	return out
}

func releasableNote(p *state.Pool) string {
	if names := state.CIDRs(p.ReleasableBlocks()); len(names) > 0 {
		return ": " + names.String()
	}
	return ""
}

// poolNodesSection lists the nodes that a pool selects, and how many of its blocks each holds.
func (x *explainer) poolNodesSection(s *builder, p *state.Pool) {
	if !p.Allows(blocks.UseWorkload) && !p.Allows(blocks.UseTunnel) {
		return // services belong to no node
	}
	s.listed("Nodes it selects")
	if why := x.unread(blocks.Nodes); why != "" {
		s.fact("", "nodes", why)
		return
	}
	for _, h := range x.NodeStates {
		if h.Node == nil || !p.SelectsNode(h.Node) {
			continue
		}
		own := 0
		for _, b := range h.Blocks {
			if b.Pool == p {
				own++
			}
		}
		text := fmt.Sprintf("blocks: %d", own)
		if need := state.NodeDemand(h.Node, p); p.ServesWorkloads() && p.Automatic {
			text += fmt.Sprintf(", may need %v", need)
		}
		if !h.Schedulable {
			text += "; not schedulable"
		}
		s.fact(nodeSource(h.Node), h.Name, text)
	}
}

// poolOwnersSection lists the pool's blocks by owner; owners with the most blocks come first.
func (x *explainer) poolOwnersSection(s *builder, p *state.Pool) {
	type holding struct {
		owner blocks.Owner
		bs    []*state.Block
	}
	var all []*holding
	for _, b := range p.Blocks {
		i := slices.IndexFunc(all, func(h *holding) bool { return h.owner == b.Owner })
		if i < 0 {
			i = len(all)
			all = append(all, &holding{owner: b.Owner})
		}
		all[i].bs = append(all[i].bs, b)
	}
	slices.SortStableFunc(all, func(a, b *holding) int {
		return cmp.Or(cmp.Compare(len(b.bs), len(a.bs)), cmp.Compare(a.owner.String(), b.owner.String()))
	})
	s.listed("Blocks by owner")
	for _, h := range all {
		words := make([]string, len(h.bs))
		for i, b := range h.bs {
			words[i] = fmt.Sprintf("%s (%d in use)", b.CIDR, b.Used)
			if b.Used == 0 && b.Releasability.OK {
				words[i] = fmt.Sprintf("%s (empty, releasable)", b.CIDR)
			}
		}
		note := ""
		switch n := h.owner.Node(); {
		case x.vanished(n):
			note = " (no such node)"
		case n != "" && len(h.bs) > 1:
			note = " (holds several)"
		}
		s.factf("", h.owner.String(), "%d%s: %s", len(h.bs), note, strings.Join(words, ", "))
	}
}

// poolReservedSection lists the reservations that overlap a pool.
func (x *explainer) poolReservedSection(s *builder, p *state.Pool) {
	s.listed("Reservations")
	for i := range x.Reservations {
		r := &x.Reservations[i]
		for _, c := range r.CIDRs {
			if c.Overlaps(p.CIDR) {
				s.fact("ipreservation/"+r.Name, r.Name, c)
			}
		}
	}
}

// poolLooseSection lists the affinities in a pool without a block of the same owner.
func (x *explainer) poolLooseSection(s *builder, p *state.Pool) {
	s.listed("Affinities without a block of their own")
	if x.unread(blocks.Blocks) != "" {
		return
	}
	seen := map[netip.Prefix]bool{}
	for i := range x.Affinities {
		a := &x.Affinities[i]
		if b := x.BlockOf(a.CIDR); a.CIDR.Overlaps(p.CIDR) && (b == nil || b.Owner != a.Owner) {
			s.fact(sourceOf("blockaffinity", a.Meta), a.CIDR.String(), x.claimText(a, b))
			seen[a.CIDR] = true
		}
	}
}

// poolSummary summarises a pool in a sentence or two.
func (x *explainer) poolSummary(p *state.Pool) string {
	if x.unread(blocks.Blocks) != "" {
		return "The pool's numbers are " + x.unread(blocks.Blocks) + "."
	}
	n := x.numbersOf(p)
	out := fmt.Sprintf("Blocks left to claim: %s of %s. Addresses available: %s of %s", n.allocatable, p.Slots.Capacity, n.available, p.Addrs.Capacity)
	if p.Disabled {
		out = "The pool is disabled. Addresses still in use: " + n.inUse
	}
	if n := len(p.ReleasableBlocks()); p.ReleasableKnown && n > 0 {
		out += fmt.Sprintf(". Releasable blocks: %d", n)
	}
	if without := x.withoutBlock(p); len(without) > 0 {
		out += ". Selected nodes without a block of their own: " + without.String()
	}
	return out + "."
}

// withoutBlock names the nodes that a pool selects for workloads and that have no block of its
// family.
func (x *explainer) withoutBlock(p *state.Pool) (out blocks.Names) {
	if x.unread(blocks.Nodes) != "" {
		return nil
	}
	for _, h := range x.NodeStates {
		for _, n := range h.BlockStatus {
			if n.NoBlock() && x.DoubtOf(n) == "" && slices.Contains(n.Pools, p) {
				out = append(out, h.Name)
			}
		}
	}
	return out
}
