package state

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// ForeignBlackhole is what a node does to a block that it does not own.
type ForeignBlackhole struct {
	View  *hosts.View
	Block *Block
	// Routes are those that drop traffic to the block or to a part of it, the
	// least specific first.
	Routes []*blocks.HostRoute
	// Dropped counts the allocated addresses of the block that the node drops
	// traffic to.
	Dropped int
	// Example is what the kernel answers for one of the addresses that it drops.
	Example hosts.Answer
}

// ForeignBlackholes returns the routes of nodes that drop traffic to blocks of others.
func (st *State) ForeignBlackholes() []*ForeignBlackhole { return st.foreign }

// findForeignBlackholes finds the routes of nodes that drop traffic to blocks of others.
func (st *State) findForeignBlackholes() {
	for v := range st.Views.OfNodes() {
		if v.Stale() {
			continue
		}
		found := map[*Block][]*blocks.HostRoute{}
		var around []*Block
		for i := range v.Routes {
			r := &v.Routes[i]
			// The default route is no statement about a block.
			if !hosts.IsDropping(r.Type) || r.Dst.Bits() == 0 {
				continue
			}
			for _, b := range st.BlocksAt(r.Dst) {
				if !st.ofAnother(b, v.Node) {
					continue
				}
				if found[b] == nil {
					around = append(around, b)
				}
				found[b] = append(found[b], r)
			}
		}
		slices.SortFunc(around, func(a, b *Block) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
		for _, b := range around {
			st.evaluateForeignBlackhole(v, b, found[b])
		}
	}
}

// ofAnother reports whether a block is another node's, or no one's while addresses of
// it are in use. Blocks of LoadBalancer services are left aside: their addresses
// are translated before any route is looked up, and nodes may black-hole them.
func (st *State) ofAnother(b *Block, node string) bool {
	if b.Owner == (blocks.Owner{}) {
		return b.Used > 0
	}
	return b.Owner.Kind == blocks.HostOwner && b.Owner.Name != node
}

// evaluateForeignBlackhole asks the kernel about the addresses of a block that its node does not
// own and has dropping routes for. An empty block is evaluated as a whole, one with
// allocations by those.
func (st *State) evaluateForeignBlackhole(v *hosts.View, b *Block, routes []*blocks.HostRoute) {
	routes = slices.DeleteFunc(routes, func(r *blocks.HostRoute) bool { return st.ownRoute(v.Node, r.Dst, b) })
	slices.SortStableFunc(routes, func(a, c *blocks.HostRoute) int { return blocks.ComparePrefixes(a.Dst, c.Dst) })
	if len(routes) == 0 {
		return
	}
	whole := v.General(b.CIDR)
	s := &ForeignBlackhole{View: v, Block: b, Routes: routes, Example: whole}
	inner := routes[len(routes)-1].Dst.Bits() > b.CIDR.Bits()
	if whole.Outcome != hosts.Drops && !inner {
		return // a route to the block overrides the wider ones that drop
	}
	for i, o := range b.Ordinals {
		if o == blocks.Free {
			continue
		}
		a := b.Address(i)
		if answer := v.AnswerAt(a, b.CIDR); answer.Outcome == hosts.Drops && coveredBy(routes, a) {
			if s.Dropped++; s.Dropped == 1 {
				s.Example = answer
			}
		}
	}
	if s.Dropped == 0 && (b.Used > 0 || whole.Outcome != hosts.Drops) {
		return
	}
	since := b.ownedSince()
	if b.Owner.Kind != blocks.HostOwner {
		since = 0 // when its owner left it is not recorded
	}
	if st.Views.Proves(v, since.Std(), "that block "+b.CIDR.String()+" belongs to "+phrase.Owner(b.Owner)) {
		st.foreign = append(st.foreign, s)
	}
}

func coveredBy(routes []*blocks.HostRoute, a netip.Addr) bool {
	return slices.ContainsFunc(routes, func(r *blocks.HostRoute) bool { return r.Dst.Contains(a) })
}

// ownRoute reports whether a node's route is explained by a block of its own, which
// overlaps the one at hand.
func (st *State) ownRoute(node string, dst netip.Prefix, b *Block) bool {
	h := st.nodeStates[node]
	return h != nil && slices.ContainsFunc(h.Blocks, func(own *Block) bool {
		return own != b && blocks.PrefixContains(own.CIDR, dst) && own.CIDR.Overlaps(b.CIDR)
	})
}

// Text names the routes.
func (s *ForeignBlackhole) Text() string {
	out := make([]string, len(s.Routes))
	for i, r := range s.Routes {
		out[i] = hosts.RouteText(r)
	}
	return phrase.List(out)
}
