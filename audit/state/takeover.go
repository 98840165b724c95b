package state

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// TakeoverAge is how long ago an empty block must have been claimed before Calico v3.32 and newer
// let another node take it (libcalico-go ipam/ipam_block_reader_writer.go,
// EmptyBlockMinReclaimAge).
const TakeoverAge = time.Minute

// takesBlocks reports whether the cluster's Calico takes empty blocks from other nodes.
func (st *State) takesBlocks() bool { return blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32) }

// takeable returns the empty blocks of a pool that Calico v3.32 and newer would take from their
// owner if no other block is left. The owner's last block is included, unless the owner has no
// affinity to it (findUsableBlock, releaseBlockAffinity). A block without a recorded claim time is
// old enough.
func (st *State) takeable(p *Pool) (out []*Block) {
	_, missing := st.Missing(blocks.Affinities)
	for _, b := range p.Blocks {
		if b.Used == 0 && b.Usable() && b.CIDR.Bits() == p.BlockSize && !st.Reserved.Covers(b.CIDR) && b.Owner.Kind == blocks.HostOwner &&
			(missing || st.AffinityMayExist(b.CIDR, b.Owner.Node()) || st.ownAffinity(b) != nil) && (b.Claimed.IsZero() || st.reached(b.Claimed.Add(TakeoverAge))) {
			out = append(out, b)
		}
	}
	return out
}
