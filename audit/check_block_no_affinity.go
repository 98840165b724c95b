package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

var blockNoAffinity = Check{
	ID:       "block/no-affinity",
	Title:    "a block names a host, and no BlockAffinity of that host exists",
	Severity: "error",
	Why: "The owner uses its block without anybody routing it: BIRD makes routes from affinities, and without one the block is not advertised. " +
		"Calico cannot release such a block either; its own call does nothing and reports success.",
	Confirm: "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr shows no row for the block.",
	Fix:     "The node's next assignment from this block does not restore it; the affinity object has to be given back, after a second look that it is still missing: calico-audit repair --missing-affinities does that.",
	Never:   "Never delete the block because its affinity is missing: it may be full of live pods.",
	Needs:   []blocks.Resource{blocks.Blocks, blocks.Affinities},
	Uses:    []blocks.Resource{blocks.Nodes},
	Run: func(st *State, f *Findings) {
		for _, b := range st.IPBlocks {
			host := b.Owner.Node()
			if host == "" || b.SoftDeleted || !st.ClaimSettled(b) || st.claimedBy(b, host) {
				continue
			}
			if st.AffinityMayExist(b, host) {
				f.Withhold("not judged for %s: an affinity that cannot be read may be its own", b.CIDR)
				continue
			}
			var others []string
			for _, a := range st.Claims(b.CIDR) {
				others = append(others, OwnerText(a.Owner))
			}
			fix := repairFix("--missing-affinities")
			if st.nodesRead() && st.Vanished(host) || len(others) > 0 {
				fix = Fix{"look", "calico-audit explain " + b.CIDR.String()} // what is wrong there comes first
			}
			f.Add(Finding{
				Severity: Error, Subject: BlockSubject(b), Pools: poolsOf(b.Pool), Nodes: []string{host}, Absence: true,
				Message: fmt.Sprintf("block %s belongs to %s, which has no affinity to it", b.CIDR, host),
				Evidence: Evidences("owner", host, "in use", fmt.Sprint(b.Used), "affinities of others", List(others),
					"created", FormatTime(b.Created), "observed", observed),
				Fix: fix,
			})
		}
	},
}

// claimedBy tells whether a host has an affinity object for a block, whatever
// its state. One that stays marked deleted is none: Calico no longer lists it.
func (st *State) claimedBy(b *Block, host string) bool {
	for _, a := range st.Claims(b.CIDR) {
		if a.Owner.Node() == host && (!a.SoftDeleted || !st.OldEnough(a.Meta)) {
			return true
		}
	}
	return false
}

// AffinityMayExist tells whether an affinity that could not be understood may be
// a host's for a block.
func (st *State) AffinityMayExist(b *Block, host string) bool {
	for _, g := range st.Unreadable(blocks.Affinities) {
		if (!g.OwnerKnown || g.Owner.Node() == host) && (!g.Prefix.IsValid() || g.Prefix == b.CIDR) {
			return true
		}
	}
	return false
}
