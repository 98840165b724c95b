package state

import (
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Disownable decides whether the affinity of a block in use may be deleted because its owner no
// longer exists. Calico then deletes the block with its last address (releaseBlockAffinity of
// libcalico-go ipam/ipam_block_reader_writer.go). It may if live pods and tunnels of other,
// existing nodes use all its addresses.
func (st *State) Disownable(b *Block) Releasability {
	r, host := Releasability{}, b.Owner.Node()
	switch {
	case !st.Vanished(host):
		r.retain(RetainInUse, "its owner %s is a node", host)
	case b.SoftDeleted:
		r.retain(RetainMarked, "it is marked deleted already")
	case len(b.Faults) > 0:
		r.retain(RetainCorrupt, "it is corrupt: %s", b.Faults[0])
	case !st.ClaimPastGrace(b):
		r.retain(RetainYoung, "it was created or claimed less than %s ago", phrase.Duration(st.Grace))
		r.Due = st.Due(b.ClaimedAt())
	}
	st.RetainForOthers(b, st.Views.ContradictFree(b.Block), &r)
	lent := map[netip.Addr]*Borrow{}
	if h := st.nodeStates[host]; h != nil {
		for _, br := range h.Lent {
			if br.Block == b && (br.Workload != nil || br.Tunnel && len(st.tunnels[br.Addr]) > 0) && !st.Vanished(br.User) && !st.UnreadableNode(br.User) {
				lent[br.Addr] = br
			}
		}
	}
	for i, o := range b.Ordinals {
		switch addr := b.Address(i); {
		case o == blocks.Free:
			if who := st.UnrecordedUser(netip.PrefixFrom(addr, addr.BitLen())); who != "" {
				r.retain(RetainInUse, "%s, which it does not record: --unrecorded-ips does", who)
			}
		case lent[addr] == nil && NodeOf(b.At(i)) == host:
			r.retain(RetainInUse, "it holds %s, recorded for %s itself: once that is released (--leaked-ips --terminated %[2]s, if the machine is known to be off), it may go", addr, phrase.Arg(host))
		case lent[addr] == nil:
			r.retain(RetainInUse, "it holds %s, which no live pod of another node is seen to use: once that is released (--leaked-ips), it may go", addr)
		case NodeOf(b.At(i)) == host:
			r.retain(RetainConflict, "%s is recorded for %s, and used on %s", addr, host, lent[addr].User)
		}
	}
	r.OK = r.Reason == ""
	return r
}
