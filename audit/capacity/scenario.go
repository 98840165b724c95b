package capacity

import (
	"net/netip"
	"reflect"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scenario is what to assume, all at once: settings first, then nodes that go, then nodes
// that come, each with its pods, then pods. The zero Scenario asks for today's headroom.
type Scenario struct {
	// AddNodes is how many nodes join, with these labels beside those that Kubernetes
	// gives, and PodsPerNode how many pods of the pod network each of them runs.
	AddNodes    int               `json:"addNodes,omitempty"`
	NodeLabels  map[string]string `json:"nodeLabels,omitempty"`
	PodsPerNode int               `json:"podsPerNode,omitempty"`
	// RemoveNodes are nodes that go; their pods, but for those of DaemonSets, start again
	// on the others.
	RemoveNodes []string `json:"removeNodes,omitempty"`
	// Pods is by how many the pods grow, spread over the nodes as today's are.
	Pods int `json:"pods,omitempty"`
	// AddPools are further pools.
	AddPools []NewPool `json:"addPools,omitempty"`
	// BlockSizes are other block sizes, each for a pool that replaces one of the same
	// CIDR, with all of its addresses assigned again: the size of a pool that exists
	// cannot change.
	BlockSizes []BlockSize `json:"blockSizes,omitempty"`
	// StrictAffinity and MaxBlocks, where not nil, are the IPAM configuration's.
	StrictAffinity *bool `json:"strictAffinity,omitempty"`
	MaxBlocks      *int  `json:"maxBlocks,omitempty"`
	// Reserve are further reservations.
	Reserve []netip.Prefix `json:"reserve,omitempty"`
}

// NewPool is a pool to add: it serves workloads and tunnels, and encapsulates as the first
// pool of its family does.
type NewPool struct {
	CIDR      netip.Prefix `json:"cidr"`
	BlockSize int          `json:"blockSize"`
	// NodeSelector limits who may use it; empty selects all nodes.
	NodeSelector string `json:"nodeSelector,omitempty"`
}

// IsZero reports whether nothing is to be assumed.
func (q *Scenario) IsZero() bool { return reflect.ValueOf(*q).IsZero() }

// BlockSize is another block size of a pool. Pool may be empty where one pool of the
// family serves workloads.
type BlockSize struct {
	Pool string `json:"pool,omitempty"`
	Bits int    `json:"blockSize"`
}

// Family returns the address family that a block size is of: up to 32 IPv4's.
func (b BlockSize) Family() blocks.Family {
	if b.Bits > 32 {
		return blocks.IPv6
	}
	return blocks.IPv4
}
