package state

import (
	"cmp"
	"net/netip"
)

// UnrecordedIP is an address of an enabled pool that live pods or tunnels use but no block records.
type UnrecordedIP struct {
	Addr  netip.Addr
	Pool  *Pool
	Users []LiveUse
	// Block is the block that covers the address; nil if none exists.
	Block *Block
	// OtherIPAM explains why Calico should not record the address: no user of the address is known
	// to get addresses from Calico's IPAM. It is empty if one does.
	OtherIPAM string
}

// EachUnrecorded calls fn, in order, for each address of an enabled pool that is in use but that
// no block records.
func (st *State) EachUnrecorded(fn func(u UnrecordedIP)) {
	st.eachUse(func(a netip.Addr, pods []use) {
		if st.recorded(a, pods) { // true for nearly every address, so it is checked before any pool
			return
		}
		users, pool := st.LiveUses(a, pods), st.EnabledPool(a)
		if len(users) > 0 && pool != nil {
			fn(UnrecordedIP{Addr: a, Pool: pool, Users: users, Block: st.CoveringBlock(a), OtherIPAM: cmp.Or(st.usedOutside(a, users), st.otherIPAM.Unknown)})
		}
	})
}
