package affinity

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// BorrowForecast is what would become of addresses that nodes borrowed from each other:
// how many pairs of nodes there are of each outcome.
type BorrowForecast struct {
	Dropped, Delivered, Unknown int
	// Example is the prediction for one pair: one that drops, if any does.
	Example Prediction
	// Whole is false where there are too many different pairs to look at each.
	Whole bool
}

// AllDropped is true if borrowing works between no two nodes.
func (o BorrowForecast) AllDropped() bool {
	return o.Whole && o.Dropped > 0 && o.Delivered+o.Unknown == 0
}

// maxPairs is how many different pairs of nodes an [BorrowForecast] looks at.
const maxPairs = 1_000

// Pool says what would become of borrowed addresses of a pool among some nodes,
// such as those that the pool selects. Nodes that are alike are looked at once,
// and each stands for all of them.
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

// likeness is what a prediction about two nodes goes by; nodes of the same one
// are alike.
type likeness struct {
	group         *group
	name          string // of a node that could not be read whole
	address, vtep bool
	// subnet is the node's own subnet, and within the smallest of all in which its
	// address lies, where routes within a subnet go without a tunnel.
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
		// Subnets lie in each other or apart, so that the smallest around it tells all.
		k.subnet, k.within = a.Masked(), cross.around(a.Addr())[0]
	}
	return k
}

// crossSubnets returns the nodes' subnets if the outcome of an address may depend on
// them: in a pool that uses VXLAN across subnets only, and with a node that has no
// VXLAN tunnel address. Else it returns nil.
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

// hypothetical predicts for the first block of a pool as if one node owned it and
// another used its first address.
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
