package state

import (
	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// RouteReads are the reads that predicting the routes of borrowed addresses needs.
var RouteReads = []blocks.Resource{
	blocks.Pools, blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters, blocks.Nodes, blocks.Pods,
}

// Predict returns how the cluster's topology routes traffic to a borrowed address once it reaches
// the block's owner.
func (st *State) Predict(b *Borrow) affinity.Prediction {
	var pool *blocks.Pool
	if b.Block.Pool != nil {
		pool = b.Block.Pool.Pool
	}
	return st.Routing.Borrowed(affinity.Borrowed{
		Addr: b.Addr, Block: b.Block.Block, Pool: pool, Owner: b.Owner, User: b.User, Attributes: b.Attributes, Tunnel: b.Tunnel,
	})
}

// Forecast returns how traffic would be routed if the nodes that a pool selects borrowed its
// addresses from each other.
func (st *State) Forecast(p *Pool) affinity.BorrowForecast {
	var nodes []*blocks.Node
	for i := range p.selected.All() {
		nodes = append(nodes, st.NodeStates[i].Node)
	}
	return st.Routing.Pool(p.Pool, nodes)
}
