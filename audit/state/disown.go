package state

import (
	"cmp"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Disownable decides whether the affinity of a block in use may be deleted because its owner no
// longer exists. Calico then deletes the block with its last address (libcalico-go ipam/ipam.go,
// releaseIPsFromBlock); addresses that a Windows node reserved do not prevent that
// (containsOnlyReservedIPs). Live pods and tunnels of other, existing nodes must use all addresses
// that are not reserved.
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
		r.retain(RetainYoung, "it was created or claimed within the grace period")
		r.Due = st.Due(b.ClaimedAt())
	}
	st.RetainForOthers(b, st.Views.ContradictFree(b.Block), &r)
	lent, reserved := map[netip.Addr]*Borrow{}, blocks.Names(nil)
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
				r.retain(RetainInUse, "%s, which it does not record (--unrecorded-ips records it)", who)
			}
		case UseKindOf(b, at) == UseWindows:
			reserved = append(reserved, addr.String())
		case lent[addr] == nil && v.Owned && !v.Young:
			r.retain(RetainInUse, "it may be deleted once %s is released: %s", addr, v.Why())
		case lent[addr] == nil && NodeOf(at) == host:
			r.retain(RetainInUse, "it may be deleted once %s, recorded for %s itself, is released (--leaked-ips --terminated %[2]s, if the machine is known to be off)", addr, phrase.Arg(host))
		case lent[addr] == nil:
			r.retain(RetainInUse, "it may be deleted once %s is released (--leaked-ips); no live pod of another node uses this address", addr)
		case NodeOf(at) == host:
			r.retain(RetainConflict, "%s is recorded for %s, and used on %s", addr, host, lent[addr].User)
		}
	}
	if len(lent) == 0 {
		r.retain(RetainSpecial, "it holds only %s, which Windows reserves. Calico's collector deletes it with them; if the collector does not run, release each (calicoctl ipam release --ip=ADDRESS), and --dead-nodes deletes the block", phrase.List(reserved))
	}
	r.OK = r.Reason == ""
	return r
}
