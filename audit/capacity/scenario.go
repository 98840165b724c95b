package capacity

import (
	"net/netip"
	"reflect"

	"github.com/calico-audit/calico-audit/blocks"
)

// Scenario is a set of changes to assume. They apply in this order: settings, removed
// nodes, added nodes with their pods, further pods. The zero Scenario asks for today's
// headroom.
type Scenario struct {
	// AddNodes is the number of joining nodes. If MaxNodes is set, Ask computes AddNodes: nodes
	// join until the cluster has MaxNodes. NodeLabels are added to the labels that Kubernetes
	// sets. PodsPerNode is the number of pods on the pod network that each joining node runs.
	AddNodes    int               `json:"addNodes,omitempty"`
	MaxNodes    int               `json:"maxNodes,omitempty"`
	NodeLabels  map[string]string `json:"nodeLabels,omitempty"`
	PodsPerNode int               `json:"podsPerNode,omitempty"`
	// RemoveNodes are nodes to remove. Their pods restart on other nodes, except for those
	// of DaemonSets.
	RemoveNodes []string `json:"removeNodes,omitempty"`
	// Pods is the number of additional pods, spread over the nodes like today's.
	Pods     int       `json:"pods,omitempty"`
	AddPools []NewPool `json:"addPools,omitempty"`
	// BlockSizes are new block sizes. Each replaces a pool by one with the same CIDR and
	// assigns all its addresses again, because the block size of an existing pool cannot
	// change.
	BlockSizes []BlockSize `json:"blockSizes,omitempty"`
	// StrictAffinity and MaxBlocks replace fields of the IPAM configuration, if not nil.
	StrictAffinity *bool `json:"strictAffinity,omitempty"`
	MaxBlocks      *int  `json:"maxBlocks,omitempty"`
	// Reserve are additional reservations.
	Reserve []netip.Prefix `json:"reserve,omitempty"`
}

// NewPool is a pool to add. It serves workloads and tunnels, and uses the encapsulation of
// the first pool of its family.
type NewPool struct {
	CIDR      netip.Prefix `json:"cidr"`
	BlockSize int          `json:"blockSize"`
	// NodeSelector limits which nodes use the pool; empty selects all nodes.
	NodeSelector string `json:"nodeSelector,omitempty"`
}

// IsZero reports whether the scenario changes nothing.
func (q *Scenario) IsZero() bool { return reflect.ValueOf(*q).IsZero() }

// BlockSize is a new block size for a pool. Pool may be empty if only one pool of the
// family serves workloads.
type BlockSize struct {
	Pool string `json:"pool,omitempty"`
	Bits int    `json:"blockSize"`
}

// Family returns the address family of the block size: IPv4 up to 32 bits.
func (b BlockSize) Family() blocks.Family {
	if b.Bits > 32 {
		return blocks.IPv6
	}
	return blocks.IPv4
}
