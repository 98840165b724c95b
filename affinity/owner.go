package affinity

import "github.com/calico-audit/calico-audit/blocks"

// Standing is how an affinity stands to the block that it claims.
type Standing int

// The standings of an affinity. The block's own record of its owner decides:
// address assignment goes by it, and an affinity that contradicts it is stale
// (libcalico-go ipam/ipam.go, getBlockFromAffinity).
const (
	// Confirmed: the block names the affinity's owner, and the claim is settled.
	Confirmed Standing = iota
	// Unsettled: the block names the affinity's owner, and the affinity is
	// pending or pendingDeletion. It heals at the owner's next assignment.
	Unsettled
	// NoBlock: no block of that CIDR exists.
	NoBlock
	// NotOwner: the block names another owner, or none.
	NotOwner
)

// Judge says how an affinity stands to the block of its CIDR; nil means that no
// such block exists.
func Judge(a *blocks.Affinity, b *blocks.Block) Standing {
	switch {
	case b == nil:
		return NoBlock
	case b.Owner != a.Owner:
		return NotOwner
	case a.Effective() == blocks.Confirmed:
		return Confirmed
	}
	return Unsettled
}

// Blackholes tells whether BIRD gives the affinity's node a blackhole route for
// the CIDR: it does for every affinity that is not pending, whoever owns the
// block, except in pools whose routes others program (confd
// pkg/backends/calico/client.go and the bird_ipam template).
func Blackholes(s *blocks.Snapshot, a *blocks.Affinity, p *blocks.Pool) bool {
	return a.Effective() != blocks.Pending && !a.CIDR.IsSingleIP() && BIRDRoutes(s, p)
}

// BIRDRoutes tells whether BIRD programs the routes of a pool: those of pools
// without VXLAN, unless Felix was told to, or does so by its version's default.
// Nil stands for a CIDR in no pool, which BIRD's kernel filter lets pass.
func BIRDRoutes(s *blocks.Snapshot, p *blocks.Pool) bool {
	switch {
	case p == nil:
		return s.Felix.ProgramClusterRoutes != "Enabled"
	case p.VXLAN != "" && p.VXLAN != blocks.EncapNever:
		return false
	case s.Felix.ProgramClusterRoutes == "Enabled":
		return false
	case s.Felix.ProgramClusterRoutes == "" && p.IPIP != "" && p.IPIP != blocks.EncapNever && AtLeast(s.Cluster.CalicoVersion, 3, 33):
		return false
	}
	return true
}
