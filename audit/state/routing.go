package state

import (
	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// RouteReads is what it takes to predict what becomes of a borrowed address.
var RouteReads = []blocks.Resource{
	blocks.Pools, blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters, blocks.Nodes, blocks.Pods,
}

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

// Forecast says what would become of addresses of a pool that the nodes which it selects
// borrowed from each other.
func (st *State) Forecast(p *Pool) affinity.BorrowForecast {
	var nodes []*blocks.Node
	for i := range p.selected.all() {
		nodes = append(nodes, st.NodeStates[i].Node)
	}
	return st.Routing.Pool(p.Pool, nodes)
}

// OutcomeText is a outcome in a word or two.
func OutcomeText(f affinity.RouteOutcome) string {
	if f == affinity.Unknown {
		return "not known"
	}
	return f.String()
}
