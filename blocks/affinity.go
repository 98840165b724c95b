package blocks

import (
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// AffinityState is how far a BlockAffinity's claim has come.
type AffinityState = apiv3.BlockAffinityState

// The states of an affinity. Calico reads an empty state as confirmed.
const (
	Pending         = apiv3.StatePending
	Confirmed       = apiv3.StateConfirmed
	PendingDeletion = apiv3.StatePendingDeletion
)

// Affinity is a BlockAffinity: a node's claim to a block, separate from the
// block's own record of its owner.
type Affinity struct {
	Meta
	CIDR netip.Prefix
	// Owner is who claims. If the type is empty, it is that of the label, else "host" as
	// in Calico v3.31.1 and newer.
	Owner Owner
	// State as stored; an empty one means confirmed.
	State AffinityState
	// SoftDeleted is spec.deleted, a text in the older API group and a boolean
	// in the newer.
	SoftDeleted bool
	// Unlabelled is true for affinities written before Calico v3.31, which lack
	// the hash label that newer Calico lists a host's affinities by.
	Unlabelled bool
}

// Effective returns the state with the empty one resolved.
func (a *Affinity) Effective() AffinityState {
	if a.State == "" {
		return Confirmed
	}
	return a.State
}

// Handle is an IPAMHandle: how many addresses of which blocks were assigned
// under one ID, which for pods names the container sandbox.
type Handle struct {
	Meta
	ID string
	// Blocks are the handle's counts, in CIDR order. Handles that count alike share them.
	Blocks []HandleCount
	// SoftDeleted is spec.deleted.
	SoftDeleted bool
}

// HandleCount is a handle's count for one block.
type HandleCount struct {
	CIDR  netip.Prefix
	Count int
}
