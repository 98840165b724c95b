package state

import (
	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// Predict says by the cluster's topology what becomes of traffic to a borrowed
// address when it reaches the block's owner.
func (st *State) Predict(b *Borrow) affinity.Prediction {
	var pool *blocks.Pool
	if b.Block.Pool != nil {
		pool = b.Block.Pool.Pool
	}
	return st.Routing.Borrowed(affinity.Borrowed{
		Addr: b.Addr, Block: b.Block.Block, Pool: pool, Owner: b.Owner, User: b.User, Attributes: b.Attributes, Tunnel: b.Tunnel,
	})
}

// OutcomeText is a outcome in a word or two.
func OutcomeText(f affinity.RouteOutcome) string {
	if f == affinity.Unknown {
		return "not known"
	}
	return f.String()
}
