package affinity

import "github.com/calico-audit/calico-audit/blocks"

// Status relates an affinity to the block that it claims.
type Status int

// The statuses of an affinity. The block's own record of its owner decides, because address
// assignment uses it. An affinity that contradicts it is stale (libcalico-go ipam/ipam.go,
// getBlockFromAffinity).
const (
	// Confirmed: the block names the affinity's owner, and the affinity is confirmed.
	Confirmed Status = iota
	// Unconfirmed: the block names the affinity's owner, and the affinity is pending or
	// pendingDeletion. The owner's next assignment repairs it.
	Unconfirmed
	// NoBlock: no block has that CIDR.
	NoBlock
	// NotOwner: the block names another owner, or has none.
	NotOwner
)

// Classify returns the status of an affinity. b is the block with its CIDR; nil if there is
// none.
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
