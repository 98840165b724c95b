package affinity

import "github.com/calico-audit/calico-audit/blocks"

// Status is how an affinity stands to the block that it claims.
type Status int

// The standings of an affinity. The block's own record of its owner decides:
// address assignment goes by it, and an affinity that contradicts it is stale
// (libcalico-go ipam/ipam.go, getBlockFromAffinity).
const (
	// Confirmed: the block names the affinity's owner, and the claim is settled.
	Confirmed Status = iota
	// Unconfirmed: the block names the affinity's owner, and the affinity is
	// pending or pendingDeletion. It heals at the owner's next assignment.
	Unconfirmed
	// NoBlock: no block of that CIDR exists.
	NoBlock
	// NotOwner: the block names another owner, or none.
	NotOwner
)

// Classify says how an affinity stands to the block of its CIDR; nil means that no
// such block exists.
func Classify(a *blocks.Affinity, b *blocks.Block) Status {
	switch {
	case b == nil:
		return NoBlock
	case b.Owner != a.Owner:
		return NotOwner
	case a.Effective() == blocks.Confirmed:
		return Confirmed
	}
	return Unconfirmed
}
