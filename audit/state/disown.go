package state

import (
	"cmp"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Disownable decides whether the affinity of a block in use may be deleted because its owner no
// longer exists. Calico then deletes the block with its last address, and with those that a Windows
// node reserved in it (libcalico-go ipam/ipam.go, releaseIPsFromBlock, and containsOnlyReservedIPs).
// It may if live pods and tunnels of other, existing nodes use all its other addresses.
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
	lent, reserved := map[netip.Addr]*Borrow{}, []string(nil)
	for _, br := range cmp.Or(st.nodeStates[host], &NodeState{}).Lent {
		if br.Block == b && (br.Workload != nil || br.Tunnel && len(st.tunnels[br.Addr]) > 0) && !st.Vanished(br.User) && !st.UnreadableNode(br.User) {
			lent[br.Addr] = br
		}
	}
	for i, o := range b.Ordinals {
		addr, at := b.Address(i), b.At(i)
		switch v := st.Classify(AllocationRef{Block: b, Ordinal: i}); {
		case o == blocks.Free:
			if who := st.UnrecordedUser(IPPrefix(addr)); who != "" {
				r.retain(RetainInUse, "%s, which it does not record: --unrecorded-ips does", who)
			}
		case UseKindOf(b, at) == UseWindows:
			reserved = append(reserved, addr.String())
		case lent[addr] == nil && v.Owned && !v.Young:
			r.retain(RetainInUse, "it holds %s, and may go once that is released: %s", addr, v.Why())
		case lent[addr] == nil && NodeOf(at) == host:
			r.retain(RetainInUse, "it holds %s, recorded for %s itself: once that is released (--leaked-ips --terminated %[2]s, if the machine is known to be off), it may go", addr, phrase.Arg(host))
		case lent[addr] == nil:
			r.retain(RetainInUse, "it holds %s, which no live pod of another node is seen to use: once that is released (--leaked-ips), it may go", addr)
		case NodeOf(at) == host:
			r.retain(RetainConflict, "%s is recorded for %s, and used on %s", addr, host, lent[addr].User)
		}
	}
	if len(lent) == 0 {
		r.retain(RetainSpecial, "it holds only %s, which Windows reserves: Calico's collector deletes it with them; if that does not run, release each (calicoctl ipam release --ip=ADDRESS), and --dead-nodes deletes it", phrase.List(reserved))
	}
	r.OK = r.Reason == ""
	return r
}
