package affinity

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// Borrowed predicts the outcome for traffic to a borrowed address that reaches the block's
// owner or originates there: both use the same routes.
//
// The owner drops traffic that it cannot deliver within its block, unless it has a longer
// route to the address. Felix programs such a route from the block's allocations; BIRD
// learns it by BGP. The prediction ignores the running state, such as sessions that are
// down and nodes without BIRD.
func (r *Routing) Borrowed(b Borrowed) Prediction {
	switch {
	case b.Owner == "":
		return Prediction{Outcome: Delivered, Reason: "the block belongs to no node, so no node has a blackhole for it"}
	case b.Block.CIDR.IsSingleIP():
		return Prediction{Outcome: Delivered, Reason: "a block of a single address gets no blackhole"}
	case b.Pool == nil:
		if p, missing := r.unread(blocks.Pools); missing {
			return p
		}
		return unknown("on "+b.Owner+": ip route get "+b.Addr.String(),
			"the block is in no pool: BIRD, if it runs, drops traffic to it on %s and announces %s to no other node; Felix ignores it", b.Owner, b.Addr)
	case r.noNode(b.Owner):
		return Prediction{Outcome: Delivered, Reason: b.Owner + " is not a node of the cluster, so no node drops the traffic"}
	}
	p := r.predict(b)
	if p.Outcome == Dropped && r.wireguard(b) {
		return unknown("on "+b.Owner+": ip route get "+b.Addr.String(),
			"%s and %s have WireGuard addresses: if WireGuard is up between them, its routes take precedence and lead to the address; without it the traffic is dropped, because %s", b.Owner, b.User, p.Reason)
	}
	return p
}

func (r *Routing) predict(b Borrowed) Prediction {
	who, decidedBy := r.programmer(b.Pool)
	switch who {
	case byFelix:
		return r.felix(b)
	case byBIRD:
		return r.bird(b)
	case byEither:
	}
	f, g := r.felix(b), r.bird(b)
	if f.Outcome == g.Outcome {
		return Prediction{Outcome: f.Outcome, DecidedBy: g.DecidedBy,
			Reason: fmt.Sprintf("whether Felix or BIRD programs the pool's routes is not known, but the outcome is the same: if BIRD, %s; if Felix, %s", g.Reason, f.Reason)}
	}
	return unknown(decidedBy, "whether Felix or BIRD programs the pool's routes is not known: if BIRD, it is %s, because %s; if Felix, %s, because %s",
		outcomeOr(g.Outcome), g.Reason, outcomeOr(f.Outcome), f.Reason)
}

func outcomeOr(f RouteOutcome) string {
	if f == Unknown {
		return "not known"
	}
	return f.String()
}
