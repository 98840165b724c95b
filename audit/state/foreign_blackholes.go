package state

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// ForeignBlackhole describes how a node drops traffic to a block that it does not own.
type ForeignBlackhole struct {
	View  *hosts.View
	Block *Block
	// Routes are the routes that drop traffic to the block or a part of it, least specific first.
	Routes []*blocks.HostRoute
	// Dropped counts the allocated addresses of the block to which the node drops traffic.
	Dropped int
	// Example is the kernel's answer for one of the addresses that it drops.
	Example hosts.Answer
}

// ForeignBlackholes returns the nodes' routes that drop traffic to other owners' blocks.
func (st *State) ForeignBlackholes() []*ForeignBlackhole { return st.foreign }

// findForeignBlackholes finds the nodes' routes that drop traffic to other owners' blocks.
func (st *State) findForeignBlackholes() {
	for v := range st.Views.OfNodes() {
		if v.Stale() {
			continue
		}
		found := map[*Block][]*blocks.HostRoute{}
		var around []*Block
		for i := range v.Routes {
			r := &v.Routes[i]
			// The default route is not specific to any block.
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

// ofAnother reports whether a block belongs to another node, or has no owner but addresses in use.
// Blocks of LoadBalancer services do not count: their addresses are translated before any route
// lookup, so nodes may blackhole them.
func (st *State) ofAnother(b *Block, node string) bool {
	if b.Owner == (blocks.Owner{}) {
		return b.Used > 0
	}
	return b.Owner.Kind == blocks.HostOwner && b.Owner.Name != node
}

// evaluateForeignBlackhole asks the node's kernel about the addresses of another owner's block
// for which the node has dropping routes. It asks about the allocated addresses, or about the
// whole block if it is empty.
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
		return // a route to the block overrides the wider dropping routes
	}
	for i, o := range b.Ordinals {
		if o == blocks.Free {
			continue
		}
		a := b.Address(i)
		if answer := v.AnswerAt(a, b.CIDR); answer.Outcome == hosts.Drops && slices.ContainsFunc(routes, func(r *blocks.HostRoute) bool { return r.Dst.Contains(a) }) {
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
		since = 0 // the time at which its owner gave it up is not recorded
	}
	if st.Views.Proves(v, since.Std(), "that block "+b.CIDR.String()+" belongs to "+b.Owner.String()) {
		st.foreign = append(st.foreign, s)
	}
}

// ownRoute reports whether an overlapping block of the node itself explains the route.
func (st *State) ownRoute(node string, dst netip.Prefix, b *Block) bool {
	h := st.nodeStates[node]
	return h != nil && slices.ContainsFunc(h.Blocks, func(own *Block) bool {
		return own != b && blocks.PrefixContains(own.CIDR, dst) && own.CIDR.Overlaps(b.CIDR)
	})
}
