package affinity

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// BorrowForecast counts, by outcome, the pairs of nodes that could borrow from each other.
type BorrowForecast struct {
	Dropped, Delivered, Unknown int
	// Example is the prediction for one pair, preferably one that drops traffic.
	Example Prediction
	// Whole is false if there are too many different pairs to evaluate each.
	Whole bool
}

// AllDropped reports whether borrowing works for no pair of nodes.
func (o BorrowForecast) AllDropped() bool {
	return o.Whole && o.Dropped > 0 && o.Delivered+o.Unknown == 0
}

// maxPairs limits the different pairs of nodes that a [BorrowForecast] evaluates.
const maxPairs = 1_000

// Pool predicts the outcome of borrowing among the given nodes of a pool, such as the nodes
// that the pool selects. Nodes that are alike are evaluated once.
func (r *Routing) Pool(p *blocks.Pool, nodes []*blocks.Node) BorrowForecast {
	o := BorrowForecast{Whole: true}
	ss := r.sessions[p.Family()]()
	var order []likeness
	alike := map[likeness][]*blocks.Node{}
	subnets := crossSubnets(p, nodes)
	for _, n := range nodes {
		k := r.likeness(ss, p, n, subnets)
		if alike[k] == nil {
			order = append(order, k)
		}
		alike[k] = append(alike[k], n)
	}
	looked := 0
	for _, k := range order {
		for _, l := range order {
			owner, user, pairs := alike[k][0], alike[l][0], len(alike[k])*len(alike[l])
			if k == l {
				if len(alike[k]) < 2 {
					continue
				}
				user, pairs = alike[k][1], len(alike[k])*(len(alike[k])-1)
			}
			if looked++; looked > maxPairs {
				o.Whole = false
				return o
			}
			o.count(r.hypothetical(p, owner.Name, user.Name), pairs)
		}
	}
	return o
}

// likeness holds everything about a node that predictions depend on. Nodes with equal likeness give
// equal predictions.
type likeness struct {
	group         *group
	name          string // only set if the node could not be read completely
	address, vtep bool
	// subnet is the node's own subnet. within is the smallest subnet of any node that
	// contains its address. They are set if routes within a subnet need no tunnel.
	subnet, within   blocks.Prefix
	wireguard, known bool
}

func (r *Routing) likeness(ss *sessions, p *blocks.Pool, n *blocks.Node, cross *byPrefix[*blocks.Node]) likeness {
	f := p.Family()
	k := likeness{address: addressOf(n, f).IsValid(), wireguard: hasWireguard(n, f), known: ss.speakers[n.Name] != nil}
	if _, bad := r.nodeFault(n.Name); bad {
		k.name = n.Name
	}
	if !encapsulated(p.VXLAN) {
		if k.known {
			k.group = ss.speakers[n.Name].group
		}
		return k
	}
	k.vtep = hasVTEP(n, f)
	if a := addressOf(n, f); cross != nil && a.IsValid() {
		// Subnets are nested or disjoint, so the smallest one around the address suffices.
		k.subnet, k.within = a.Masked(), cross.around(a.Addr())[0]
	}
	return k
}

// crossSubnets returns the nodes' subnets if predictions may depend on them: in a pool with
// VXLAN CrossSubnet, if a node lacks a VXLAN tunnel address. Otherwise it returns nil.
func crossSubnets(p *blocks.Pool, nodes []*blocks.Node) *byPrefix[*blocks.Node] {
	f := p.Family()
	if p.VXLAN != blocks.EncapCrossSubnet || !slices.ContainsFunc(nodes, func(n *blocks.Node) bool { return !hasVTEP(n, f) }) {
		return nil
	}
	s := &byPrefix[*blocks.Node]{}
	for _, n := range nodes {
		if a := addressOf(n, f); a.IsValid() {
			s.add(a.Masked(), n)
		}
	}
	return s
}

func (o *BorrowForecast) count(p Prediction, pairs int) {
	if o.Dropped == 0 && (p.Outcome == Dropped || o.Delivered+o.Unknown == 0) {
		o.Example = p
	}
	switch p.Outcome {
	case Dropped:
		o.Dropped += pairs
	case Delivered:
		o.Delivered += pairs
	default:
		o.Unknown += pairs
	}
}

// hypothetical predicts the outcome if owner owned the first block of a pool and user used
// its first address.
func (r *Routing) hypothetical(p *blocks.Pool, owner, user string) Prediction {
	cidr, err := p.CIDR.Addr().Prefix(max(p.BlockSize, p.CIDR.Bits()))
	if err != nil {
		cidr = p.CIDR
	}
	return r.Borrowed(Borrowed{
		Addr: cidr.Addr(), Block: &blocks.Block{CIDR: cidr, Owner: blocks.Owner{Kind: blocks.HostOwner, Name: owner}},
		Pool: p, Owner: owner, User: user, Attributes: &blocks.Attributes{Node: user}, hypothetical: true,
	})
}
