package blocks

import (
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// AffinityState is the stage of a BlockAffinity's claim.
type AffinityState = apiv3.BlockAffinityState

// The states of an affinity. Calico reads an empty state as Confirmed.
const (
	Pending         = apiv3.StatePending
	Confirmed       = apiv3.StateConfirmed
	PendingDeletion = apiv3.StatePendingDeletion
)

// Affinity is a BlockAffinity: a node's claim to a block. The block records its owner
// separately.
type Affinity struct {
	Meta
	CIDR netip.Prefix
	// Owner is the claimant. If the object has no type, the type comes from its label, else
	// it is "host", as in Calico v3.31.1 and newer.
	Owner Owner
	// State is the stored state; empty means Confirmed.
	State AffinityState
	// SoftDeleted is spec.deleted: a string in the older API group, a boolean in the newer.
	SoftDeleted bool
	// Unlabelled is true for affinities written before Calico v3.31. They lack the hash
	// label by which newer Calico lists a host's affinities.
	Unlabelled bool
}

// Effective returns the state, with Confirmed in place of the empty one.
func (a *Affinity) Effective() AffinityState {
	if a.State == "" {
		return Confirmed
	}
	return a.State
}

// Handle is an IPAMHandle. It counts, per block, the addresses assigned under one ID. For a
// pod, the ID names the container sandbox.
type Handle struct {
	Meta
	ID string
	// Blocks are the counts, in CIDR order. Handles with equal counts share the slice.
	Blocks []HandleCount
	// SoftDeleted is spec.deleted.
	SoftDeleted bool
}

// HandleCount is a handle's count for one block.
type HandleCount struct {
	CIDR  netip.Prefix
	Count int
}
