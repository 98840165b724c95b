package capacity

import (
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// Answer is what a cluster has room for and, if something was to be assumed, what comes
// of it.
type Answer struct {
	// Scenario is what was assumed; nil if nothing was.
	Scenario *Scenario `json:"question,omitempty"`
	// Rules is the Calico release whose allocator was followed.
	Rules string `json:"rules"`
	// Inconclusive says why there is no verdict; everything below is empty then.
	Inconclusive string `json:"inconclusive,omitempty"`
	// Demand is what the cluster needs already, and what of it is left under what was
	// assumed.
	Demand Demand `json:"demand"`
	// Today is the headroom of each pool that serves workloads, without what was assumed.
	Today []Headroom `json:"today"`
	// Outcome is what comes of what was assumed; nil if nothing was.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Curve is how many blocks nodes take as they join, today's pools given.
	Curve []Curve `json:"curve,omitempty"`
	// Notes say what else a reader has to know, such as what does not depend on the
	// names of nodes.
	Notes []string `json:"notes,omitempty"`
}

// Limit is what headroom ends with.
type Limit string

// The limits, of nodes that join and of pods that start.
const (
	LimitNone         Limit = ""
	LimitBlocks       Limit = "blocks"       // none left to claim
	LimitAddresses    Limit = "addresses"    // none left anywhere
	LimitSelector     Limit = "selector"     // it does not select such a node
	LimitBlocksOfNode Limit = "block limit"  // a node may hold no more of them
	LimitReservations Limit = "reservations" // what is left is reserved
	LimitNotAutomatic Limit = "automatic blocks are off"
	LimitNodes        Limit = "nodes" // none takes pods
)

// Headroom is that of one pool, as if no other existed.
type Headroom struct {
	Pool      string        `json:"pool"`
	CIDR      netip.Prefix  `json:"cidr"`
	Family    blocks.Family `json:"family"`
	BlockSize int           `json:"blockSize"`
	// Blocks is how many blocks can be claimed, Addresses how many can be handed out.
	Blocks    blocks.Count `json:"blocks"`
	Addresses blocks.Count `json:"addresses"`
	// Nodes is how many nodes can join and get a block of their own after the demand was
	// served, and NodesLimit what keeps it from being more.
	Nodes      blocks.Count `json:"nodes"`
	NodesLimit Limit        `json:"nodesLimit,omitempty"`
	// Pods is how many pods can start then, spread over the nodes as today's are, before one
	// gets an address of another node's block, or none; and PodsLimit what that one lacks.
	Pods      blocks.Count `json:"pods"`
	PodsLimit Limit        `json:"podsLimit,omitempty"`
	// First is the node that it happens to; empty where no node uses the pool. It borrows,
	// or Refused is true and its pod gets no address.
	First   string `json:"first,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// Outcome is what comes of what was assumed.
type Outcome struct {
	// Fits is true if the demand of today is served, each node that joins gets a block in
	// each family, and each pod that starts an address of its own node's blocks.
	Fits bool `json:"fits"`
	// WithoutBlock are the nodes that join and get no block, in the order in which they
	// join.
	WithoutBlock []string `json:"withoutBlock,omitempty"`
	// Started is how many pods were started, Borrowed how many of their addresses are of
	// other nodes' blocks, and Refused how many pods get none.
	Started  int `json:"started"`
	Borrowed int `json:"borrowed"`
	Refused  int `json:"refused"`
	// Restarted is how many addresses of today had to be assigned again, because their
	// pool is replaced.
	Restarted int `json:"restarted,omitempty"`
	// FirstBorrow and FirstRefusal say where that begins; nil if it does not.
	FirstBorrow  *Event `json:"firstBorrow,omitempty"`
	FirstRefusal *Event `json:"firstRefusal,omitempty"`
	// Traffic is what becomes of traffic to borrowed addresses.
	Traffic *Traffic `json:"traffic,omitempty"`
	// Nodes are those that joined, or that took a block, borrowed or were refused an
	// address, by name, the ones that join first.
	Nodes []NodeOutcome `json:"nodes,omitempty"`
	Pools []PoolOutcome `json:"pools"`
	// Changes are the smallest changes, each by itself, with which it fits; empty if it
	// does, or if none of the kinds that are tried is enough.
	Changes []Change `json:"changes,omitempty"`

	demand Demand
}

// Event is when something happens first.
type Event struct {
	// Node is the node that it happens to; empty if the pod comes to none.
	Node string `json:"node"`
	// Pod is the number of the pod that it happens with, 1 for the first that starts; 0 if
	// it is a tunnel's address, one of today that is assigned again, or of the demand of
	// today, whose pod Waits names.
	Pod   int    `json:"pod"`
	Waits string `json:"waits,omitempty"`
	// Reason is why the node can claim no block, or the pod gets no address.
	Reason string `json:"reason"`
	Limit  Limit  `json:"limit,omitempty"`
}

// Traffic is what the topology makes of borrowed addresses, as between the nodes of today.
type Traffic struct {
	// Outcome is "dropped", "delivered", "dropped in part" or "not known".
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// NodeOutcome is how a node fares.
type NodeOutcome struct {
	Node   string `json:"node"`
	Joined bool   `json:"joined,omitempty"`
	// Claimed are the blocks that it claims.
	Claimed []netip.Prefix `json:"claimed,omitempty"`
	// Started, Borrowed and Refused count its pods as those of [Outcome].
	Started  int `json:"started"`
	Borrowed int `json:"borrowed"`
	Refused  int `json:"refused"`
	// From are the nodes whose blocks it borrows from.
	From []string `json:"from,omitempty"`
}

// PoolOutcome is how a pool stands afterwards.
type PoolOutcome struct {
	Pool      string        `json:"pool"`
	CIDR      netip.Prefix  `json:"cidr"`
	Family    blocks.Family `json:"family"`
	BlockSize int           `json:"blockSize"`
	// Before and After are how many of its blocks are claimed, and Blocks how many can
	// still be.
	Before int          `json:"before"`
	After  int          `json:"after"`
	Blocks blocks.Count `json:"blocks"`
	// Idle is how many addresses lie unused in blocks of nodes, and Wasted how many of
	// these no other node may use, or not without its traffic being dropped: all of them,
	// or none.
	Idle   blocks.Count `json:"idle"`
	Wasted blocks.Count `json:"wasted"`
}

// Change is a change with which what was assumed fits.
type Change struct {
	// Kind is "prefix", "block-size", "pools" or "max-blocks".
	Kind string `json:"kind"`
	Pool string `json:"pool,omitempty"`
	// Title says what to do.
	Title string `json:"title"`
	// Left is how many blocks are left afterwards, for the next nodes.
	Left blocks.Count `json:"left"`
}

// Curve is how many blocks of a family's pools are claimed as nodes join.
type Curve struct {
	Family blocks.Family `json:"family"`
	// Capacity is how many blocks the pools have.
	Capacity blocks.Count `json:"capacity"`
	// Points begin with today, at 0 nodes. The first node without a block has one.
	Points []Point `json:"points"`
}

// Point is one point of a curve.
type Point struct {
	// Nodes is how many have joined, Blocks how many are claimed then, and WithoutBlock how
	// many of the nodes that joined have none.
	Nodes        int `json:"nodes"`
	Blocks       int `json:"blocks"`
	WithoutBlock int `json:"withoutBlock"`
}
