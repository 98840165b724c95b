package state

import (
	"cmp"
	"net/netip"
)

// UnrecordedIP is an address of an enabled pool that live pods or tunnels use and no
// block records.
type UnrecordedIP struct {
	Addr  netip.Addr
	Pool  *Pool
	Users []LiveUse
	// Block is the block that covers the address; nil if none exists.
	Block *Block
	// OtherIPAM is why the address is not Calico's to record: none of its users gets
	// addresses from Calico's IPAM, or that is not known. Empty if one does.
	OtherIPAM string
}

// EachUnrecorded calls fn for each address of an enabled pool that is in use and that no
// block records, in order.
func (st *State) EachUnrecorded(fn func(u UnrecordedIP)) {
	st.eachUse(func(a netip.Addr, pods []use) {
		if st.recorded(a, pods) { // nearly all are, whatever the number of pools
			return
		}
		users, pool := st.LiveUses(a, pods), st.EnabledPool(a)
		if len(users) > 0 && pool != nil {
			fn(UnrecordedIP{Addr: a, Pool: pool, Users: users, Block: st.CoveringBlock(a), OtherIPAM: cmp.Or(st.usedOutside(users), st.otherIPAM.Unknown)})
		}
	})
}
