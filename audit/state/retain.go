package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// RetainReason is a one-word reason to keep an object as it is.
type RetainReason string

// Reasons to keep an object, such as an empty block.
const (
	// RetainSpecial: the owner is not a node, or the node is migrating from Flannel.
	RetainSpecial RetainReason = "special"
	// RetainMarked: the block or its owner's affinity is marked deleted.
	RetainMarked RetainReason = "marked"
	// RetainCorrupt: the block contradicts itself.
	RetainCorrupt RetainReason = "corrupt"
	// RetainLocked: the datastore is locked.
	RetainLocked RetainReason = "locked"
	// RetainUnknownAge: it is unknown how long the block has been empty.
	RetainUnknownAge RetainReason = "unknown-age"
	// RetainYoung: the object was written less than the grace ago.
	RetainYoung RetainReason = "young"
	// RetainInUse: a live pod or a tunnel uses an address that the block does not record.
	RetainInUse RetainReason = "in-use"
	// RetainHostView: a node's kernel shows an address of the block in use.
	RetainHostView RetainReason = "host-view"
	// RetainConflict: another object contradicts the block.
	RetainConflict RetainReason = "conflict"
	// RetainLast: the node would keep no block.
	RetainLast RetainReason = "last"
	// RetainNoAuto: automatic blocks are off, so no node would claim the block again.
	RetainNoAuto RetainReason = "no-auto-blocks"
	// RetainUnpinned: no field identifies the version of the object to be changed.
	RetainUnpinned RetainReason = "unpinned"
	// RetainHeals: Calico itself gives the block to a node that needs it.
	RetainHeals RetainReason = "heals"
	// RetainNotRead: an object that the verdict needs was not read.
	RetainNotRead RetainReason = "not-read"
	// RetainUnknownOwner: the owner of the allocation cannot be looked up.
	RetainUnknownOwner RetainReason = "unknown-owner"
)

// Bar explains why an object must stay as it is. The zero value means that no object read prevents
// a change.
type Bar struct {
	// Reason explains why; Code is the same in one word.
	Reason string
	Code   RetainReason
	// Due is when the object is old enough; zero if its age is not the reason, or is not known.
	Due blocks.Time
}

// Because returns a bar with a formatted reason.
func Because(code RetainReason, format string, args ...any) Bar {
	return Bar{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Until returns the bar with a due time, at which age by itself ends it.
func (b Bar) Until(due blocks.Time) Bar {
	b.Due = due
	return b
}

// retain sets the bar, unless it is set already.
func (b *Bar) retain(code RetainReason, format string, args ...any) {
	if b.Code == "" {
		*b = Because(code, format, args...)
	}
}

// retain sets the reason to keep a block, unless there is one. If the present reason is the block's
// age, retain sets the reason that applies after that.
func (r *Releasability) retain(code RetainReason, format string, args ...any) {
	if r.Code == RetainYoung || r.Code == RetainUnknownAge {
		if r.After == nil {
			r.After = &Releasability{EmptySince: r.EmptySince}
		}
		r.After.retain(code, format, args...)
		return
	}
	r.Bar.retain(code, format, args...)
}

// RetainForOthers retains a block because of other objects and the nodes' kernels. uses are the
// uses of its free addresses that host views show.
func (st *State) RetainForOthers(b *Block, uses []hosts.Use, r *Releasability) {
	if len(uses) > 0 {
		r.retain(RetainHostView, "%s is in use in %s, although the block does not record it", uses[0].Addr, uses[0])
	}
	if st.BlockObjects(b.CIDR) > 1 {
		r.retain(RetainConflict, "there are several block objects of this CIDR")
	}
	if st.BlockMayCover(b.CIDR) {
		r.retain(RetainNotRead, "not evaluated: a block that cannot be read may have the same CIDR")
	}
	if name, unread := st.UnreadPod(); unread {
		r.retain(RetainNotRead, "not evaluated: pod %s could not be read, and may use an address of it", name)
	}
	host := b.Owner.Node()
	h := st.nodeStates[host]
	alone := b.Pool != nil && b.CIDR.Bits() == b.Pool.BlockSize && (h == nil || h.Node == nil) // no node keeps it, in whichever pool
	if !alone && st.PoolMayCover(b.CIDR) {
		r.retain(RetainNotRead, "not evaluated: its pool may be among those that cannot be read, and that pool may need the block")
	}
	if host == "" {
		return
	}
	if who := st.askedByName(b.CIDR, host); who != "" {
		r.retain(RetainInUse, "%s", who)
	}
	own := 0
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner != b.Owner {
			continue
		}
		if own++; a.SoftDeleted {
			r.retain(RetainMarked, "its affinity is marked deleted, and must be removed first")
		} else if st.Reserved.Covers(b.CIDR) && st.affinityBar(a).Code == RetainLast {
			r.retain(RetainLast, holdsBack, host)
		}
	}
	if own > 1 {
		r.retain(RetainConflict, "its owner has several affinity objects to it")
	}
	if own == 0 && st.AffinityMayExist(b.CIDR, host) {
		r.retain(RetainNotRead, "not evaluated: its affinity may be among those that cannot be read")
	}
	switch {
	case h == nil:
	case h.Node == nil && st.UnreadableNode(h.Name):
		r.retain(RetainNotRead, "not evaluated: its node could not be read")
	case h.Node != nil && h.Node.FromFlannel():
		r.retain(RetainSpecial, "its node is being moved from Flannel")
	}
}

// UnrecordedUser names a live pod or a tunnel that uses an address of an empty block, as after a
// datastore was restored from a backup. If the block were released, another node could claim it
// and assign the address a second time.
func (st *State) UnrecordedUser(p netip.Prefix) string {
	i, _ := slices.BinarySearchFunc(st.uses, p.Addr(), useAt)
	for ; i < len(st.uses) && p.Contains(st.uses[i].addr); i++ {
		if w := st.podOf(st.uses[i]); w.MayBeLive() {
			return fmt.Sprintf("pod %s uses %s of it", w.FullName(), st.uses[i].addr)
		}
	}
	j, _ := slices.BinarySearchFunc(st.tunnelAddrs, p.Addr(), netip.Addr.Compare)
	if j < len(st.tunnelAddrs) && p.Contains(st.tunnelAddrs[j]) {
		a := st.tunnelAddrs[j]
		return fmt.Sprintf("the tunnel of %s uses %s of it", st.TunnelsAt(a)[0].Node.Name, a)
	}
	return ""
}
