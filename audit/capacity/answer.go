package capacity

import (
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// Answer describes how much room a cluster has and, for a scenario, its outcome.
type Answer struct {
	// Scenario is the assumed change; nil for none.
	Scenario *Scenario `json:"question,omitempty"`
	// Rules is the Calico release whose allocator was simulated.
	Rules string `json:"rules"`
	// Inconclusive explains a missing answer. All fields below are then empty.
	Inconclusive string `json:"inconclusive,omitempty"`
	// Demand is the unmet demand of today's cluster, and the part that remains unmet in the
	// scenario.
	Demand Demand `json:"demand"`
	// Today is the headroom of each pool for workloads, without the scenario.
	Today []Headroom `json:"today"`
	// Outcome is the result of the scenario; nil without one.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Curve shows how many blocks are claimed as nodes join, with today's pools.
	Curve []Curve `json:"curve,omitempty"`
	// Notes list limits of the answer, such as a dependence on node names.
	Notes []string `json:"notes,omitempty"`
}

// Limit is the reason why no more nodes or pods fit.
type Limit string

// The limits for joining nodes and starting pods.
const (
	LimitNone         Limit = ""
	LimitBlocks       Limit = "blocks"       // no block left to claim
	LimitAddresses    Limit = "addresses"    // no address left in any block
	LimitSelector     Limit = "selector"     // the pool does not select the node
	LimitBlocksOfNode Limit = "block limit"  // the node already holds the maximum
	LimitReservations Limit = "reservations" // the rest is reserved
	LimitNotAutomatic Limit = "automatic blocks are off"
	LimitNodes        Limit = "nodes" // no node accepts pods
)

// Headroom is the room left in one pool, as if no other pool existed.
type Headroom struct {
	Pool      string        `json:"pool"`
	CIDR      netip.Prefix  `json:"cidr"`
	Family    blocks.Family `json:"family"`
	BlockSize int           `json:"blockSize"`
	// Blocks counts the claimable blocks. Addresses counts the assignable addresses.
	Blocks    blocks.Count `json:"blocks"`
	Addresses blocks.Count `json:"addresses"`
	// Nodes is how many nodes can join and still claim a block of their own, once today's
	// demand is served. NodesLimit is why no more can.
	Nodes      blocks.Count `json:"nodes"`
	NodesLimit Limit        `json:"nodesLimit,omitempty"`
	// Pods is how many more pods can start, spread like today's, before one gets no address from
	// its own node's blocks. PodsLimit is the reason for that one.
	Pods      blocks.Count `json:"pods"`
	PodsLimit Limit        `json:"podsLimit,omitempty"`
	// First is the node of that pod; empty if no node uses the pool. Refused is true if the
	// pod gets no address at all; otherwise it borrows one.
	First   string `json:"first,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// Outcome is the result of a scenario.
type Outcome struct {
	// Fits is true if today's demand is served, each joining node gets a block in each
	// family, and each starting pod gets its addresses from its own node's blocks.
	Fits bool `json:"fits"`
	// WithoutBlock are the joining nodes that get no block, in the order of joining.
	WithoutBlock []string `json:"withoutBlock,omitempty"`
	// Started counts the started pods. Borrowed counts their addresses from other nodes'
	// blocks, and Refused the pods without an address.
	Started  int `json:"started"`
	Borrowed int `json:"borrowed"`
	Refused  int `json:"refused"`
	// Restarted counts today's addresses that were assigned again because their pool is
	// replaced.
	Restarted int `json:"restarted,omitempty"`
	// FirstBorrow and FirstRefusal are the first such events; nil if there is none.
	FirstBorrow  *Event `json:"firstBorrow,omitempty"`
	FirstRefusal *Event `json:"firstRefusal,omitempty"`
	// Traffic describes whether traffic to borrowed addresses arrives.
	Traffic *Traffic `json:"traffic,omitempty"`
	// Nodes are the joining nodes, then by name the nodes that claimed a block, borrowed an
	// address or were refused one.
	Nodes []NodeOutcome `json:"nodes,omitempty"`
	Pools []PoolOutcome `json:"pools"`
	// Changes are the smallest changes of each kind that make the scenario fit on their
	// own. It is empty if the scenario fits, or if no tried change suffices.
	Changes []Change `json:"changes,omitempty"`

	demand Demand
}

// Event is the first occurrence of a failure.
type Event struct {
	// Node is the affected node; empty if no node accepts the pod.
	Node string `json:"node"`
	// Pod is the number of the affected pod, 1 for the first to start. It is 0 for a tunnel's
	// address, for an existing address that is assigned again, and for today's demand, where Waits
	// names the pod.
	Pod   int    `json:"pod"`
	Waits string `json:"waits,omitempty"`
	// Reason is why the node can claim no block, or why the pod gets no address.
	Reason string `json:"reason"`
	Limit  Limit  `json:"limit,omitempty"`
}

// Traffic describes the traffic to borrowed addresses between today's nodes.
type Traffic struct {
	// Outcome is "dropped", "delivered", "dropped in part" or "not known".
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// NodeOutcome is the result for a node.
type NodeOutcome struct {
	Node   string `json:"node"`
	Joined bool   `json:"joined,omitempty"`
	// Claimed are the blocks that the node claims.
	Claimed []netip.Prefix `json:"claimed,omitempty"`
	// Started, Borrowed and Refused count its pods as in [Outcome].
	Started  int `json:"started"`
	Borrowed int `json:"borrowed"`
	Refused  int `json:"refused"`
	// From are the owners of the addresses that the node borrows.
	From []string `json:"from,omitempty"`
}

// PoolOutcome is the result for a pool.
type PoolOutcome struct {
	Pool      string        `json:"pool"`
	CIDR      netip.Prefix  `json:"cidr"`
	Family    blocks.Family `json:"family"`
	BlockSize int           `json:"blockSize"`
	// Before and After count the claimed blocks. Blocks counts the claimable ones.
	Before int          `json:"before"`
	After  int          `json:"after"`
	Blocks blocks.Count `json:"blocks"`
	// Idle counts the unused addresses in the blocks of nodes. Wasted counts the addresses
	// among them that other nodes may not use, or only with dropped traffic; it is equal to
	// Idle or 0.
	Idle   blocks.Count `json:"idle"`
	Wasted blocks.Count `json:"wasted"`
}

// Change is a change that makes the scenario fit.
type Change struct {
	// Kind is "prefix", "block-size", "pools" or "max-blocks".
	Kind string `json:"kind"`
	Pool string `json:"pool,omitempty"`
	// Title describes the change as an instruction.
	Title string `json:"title"`
	// Left counts the blocks left for more nodes after the change.
	Left blocks.Count `json:"left"`
}

// Curve shows how many blocks of a family are claimed as nodes join.
type Curve struct {
	Family blocks.Family `json:"family"`
	// Capacity is the number of blocks in the pools.
	Capacity blocks.Count `json:"capacity"`
	// Points begin with today, at 0 nodes, and include the first node without a block.
	Points []Point `json:"points"`
}

// Point is one point of a curve.
type Point struct {
	// Nodes counts the joined nodes, WithoutBlock those of them without a block. Blocks
	// counts the claimed blocks.
	Nodes        int `json:"nodes"`
	Blocks       int `json:"blocks"`
	WithoutBlock int `json:"withoutBlock"`
}

// Demand is the unmet demand of today's cluster. A simulation serves it before the
// scenario.
type Demand struct {
	// Pods counts the pods that wait for an address. Nodes counts the nodes without a block
	// for their next pod.
	Pods  int `json:"waitingPods"`
	Nodes int `json:"nodesWithoutBlock"`
	// PodsLeft counts the waiting pods that get no address from their own node's blocks.
	// NodesLeft lists the nodes that get no block. First is the first of these events; nil
	// if everyone is served.
	PodsLeft  int      `json:"waitingPodsLeft"`
	NodesLeft []string `json:"nodesWithoutBlockLeft,omitempty"`
	First     *Event   `json:"firstLeft,omitempty"`
}

// served reports whether every pod and node of the demand was served.
func (d *Demand) served() bool { return d.PodsLeft+len(d.NodesLeft) == 0 }
