package audit

import (
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// strayRoute is what a node does to a block that it does not own.
type strayRoute struct {
	k     *kernel
	block *Block
	// routes are those that drop traffic to the block or to a part of it, the
	// least specific first.
	routes []*blocks.HostRoute
	// dropped counts the allocated addresses of the block that the node drops
	// traffic to.
	dropped int
	// example is what the kernel answers for one of the addresses that it drops.
	example HostRoute
}

// drops tells whether a route of a kind ends traffic.
func drops(kind string) bool {
	return kind == blocks.RouteBlackhole || kind == blocks.RouteUnreachable || kind == blocks.RouteProhibit
}

// findStrays finds the routes of nodes that drop traffic to blocks of others.
func (st *State) findStrays() {
	var nodes []string
	for name := range st.kernels.views {
		nodes = append(nodes, name)
	}
	sort.Strings(nodes)
	for _, name := range nodes {
		k := st.kernels.views[name]
		if k.useless != "" {
			continue
		}
		found := map[*Block][]*blocks.HostRoute{}
		var around []*Block
		for i := range k.Routes {
			r := &k.Routes[i]
			// The default route is no statement about a block.
			if !drops(r.Type) || r.Dst.Bits() == 0 {
				continue
			}
			for _, b := range st.blocksAround(r.Dst) {
				if !st.foreign(b, name) {
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
			st.judgeStray(k, b, found[b])
		}
	}
}

// foreign tells whether a block is another node's, or nobody's while addresses of
// it are in use. Blocks of LoadBalancer services are left aside: their addresses
// are translated before any route is looked up, and nodes may black-hole them.
func (st *State) foreign(b *Block, node string) bool {
	if b.Owner == (blocks.Owner{}) {
		return b.Used > 0
	}
	return b.Owner.Kind == blocks.HostOwner && b.Owner.Name != node
}

// blocksAround returns the blocks that overlap a CIDR.
func (st *State) blocksAround(p netip.Prefix) (out []*Block) {
	for bits := range p.Bits() {
		wider, err := p.Addr().Prefix(bits)
		if err != nil {
			break
		}
		if b := st.BlockOf(wider); b != nil {
			out = append(out, b)
		}
	}
	i := sort.Search(len(st.IPBlocks), func(i int) bool { return st.IPBlocks[i].CIDR.Addr().Compare(p.Addr()) >= 0 })
	for ; i < len(st.IPBlocks) && p.Contains(st.IPBlocks[i].CIDR.Addr()); i++ {
		if b := st.IPBlocks[i]; b.CIDR.Bits() >= p.Bits() {
			out = append(out, b)
		}
	}
	return out
}

// judgeStray asks the kernel about the addresses of a block that its node does not
// own and has dropping routes for. An empty block is judged as a whole, one with
// allocations by those.
func (st *State) judgeStray(k *kernel, b *Block, routes []*blocks.HostRoute) {
	routes = slices.DeleteFunc(routes, func(r *blocks.HostRoute) bool { return st.ownRoute(k.Node, r.Dst, b) })
	slices.SortStableFunc(routes, func(a, c *blocks.HostRoute) int { return blocks.ComparePrefixes(a.Dst, c.Dst) })
	if len(routes) == 0 {
		return
	}
	whole := k.general(b.CIDR)
	s := strayRoute{k: k, block: b, routes: routes, example: whole}
	inner := routes[len(routes)-1].Dst.Bits() > b.CIDR.Bits()
	if whole.Fate != HostDrops && !inner {
		return // a route to the block overrides the wider ones that drop
	}
	for i, o := range b.Ordinals {
		if o == blocks.Free {
			continue
		}
		a := b.Address(i)
		if answer := k.answerAt(ipPrefix(a), b.CIDR); answer.Fate == HostDrops && coveredBy(routes, a) {
			if s.dropped++; s.dropped == 1 {
				s.example = answer
			}
		}
	}
	if s.dropped == 0 && (b.Used > 0 || whole.Fate != HostDrops) {
		return
	}
	since := claimed(b)
	if b.Owner.Kind != blocks.HostOwner {
		since = time.Time{} // when its owner left it is not recorded
	}
	if st.proves(k, since, "that block "+b.CIDR.String()+" belongs to "+ownerText(b.Owner)) {
		st.kernels.strays = append(st.kernels.strays, s)
	}
}

func coveredBy(routes []*blocks.HostRoute, a netip.Addr) bool {
	return slices.ContainsFunc(routes, func(r *blocks.HostRoute) bool { return r.Dst.Contains(a) })
}

// ownRoute tells whether a node's route is explained by a block of its own, which
// overlaps the one at hand.
func (st *State) ownRoute(node string, dst netip.Prefix, b *Block) bool {
	h := st.hosts[node]
	return h != nil && slices.ContainsFunc(h.Blocks, func(own *Block) bool {
		return own != b && blocks.PrefixContains(own.CIDR, dst) && own.CIDR.Overlaps(b.CIDR)
	})
}

// text names the routes of a stray.
func (s *strayRoute) text() string {
	out := make([]string, len(s.routes))
	for i, r := range s.routes {
		out[i] = routeText(r)
	}
	return list(out)
}

// protocolText says who makes routes of a protocol.
func protocolText(protocol string) string {
	switch strings.ToLower(protocol) {
	case "bird", "12":
		return "BIRD, for an affinity of the node"
	case "80":
		return "Felix"
	case "boot", "static", "3", "4":
		return "people or their tools, by hand"
	case "kernel", "2":
		return "the kernel"
	}
	return ""
}
