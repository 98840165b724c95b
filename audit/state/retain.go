package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// RetainReason is why something is left as it is, in one word.
type RetainReason string

// Why something is held, such as an empty block.
const (
	// RetainSpecial: it is not a node's own, or its node is on its way from Flannel.
	RetainSpecial RetainReason = "special"
	// RetainMarked: it, or its owner's affinity, is marked deleted.
	RetainMarked RetainReason = "marked"
	// RetainCorrupt: it contradicts itself.
	RetainCorrupt RetainReason = "corrupt"
	// RetainLocked: the datastore is locked.
	RetainLocked RetainReason = "locked"
	// RetainUnknownAge: nothing tells how long it has been empty.
	RetainUnknownAge RetainReason = "unknown-age"
	// RetainYoung: it was written less than the grace ago.
	RetainYoung RetainReason = "young"
	// RetainInUse: a live pod or a tunnel uses an address that it does not record.
	RetainInUse RetainReason = "in-use"
	// RetainHostView: a node's kernel shows an address of it in use.
	RetainHostView RetainReason = "host-view"
	// RetainConflict: another object says something else about it.
	RetainConflict RetainReason = "conflict"
	// RetainLast: its node would keep no block.
	RetainLast RetainReason = "last"
	// RetainNoAuto: automatic blocks are off, so no node would claim it again.
	RetainNoAuto RetainReason = "no-auto-blocks"
	// RetainUnpinned: nothing identifies what would be written.
	RetainUnpinned RetainReason = "unpinned"
	// RetainHeals: Calico itself gives it to a node that needs it.
	RetainHeals RetainReason = "heals"
	// RetainNotRead: something that the verdict needs was not read.
	RetainNotRead RetainReason = "not-read"
	// RetainUnknownOwner: it names no owner that could be looked up.
	RetainUnknownOwner RetainReason = "unknown-owner"
)

// Bar is why something must stay as it is; the zero value if nothing that was read speaks
// against changing it.
type Bar struct {
	// Reason says why, and Code the same in one word.
	Reason string
	Code   RetainReason
	// Due is when its age is no reason any more; zero if it is none, or not known.
	Due blocks.Time
}

// Because is a bar in words.
func Because(code RetainReason, format string, args ...any) Bar {
	return Bar{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Until is a bar that age alone ends, at a time.
func (b Bar) Until(due blocks.Time) Bar {
	b.Due = due
	return b
}

// retain notes why something stays, unless that is known already.
func (b *Bar) retain(code RetainReason, format string, args ...any) {
	if b.Code == "" {
		*b = Because(code, format, args...)
	}
}

// retain notes why a block stays, unless it is held already: for its age, it notes why it
// stays then.
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

// RetainForOthers holds a block for what other objects and the nodes' kernels
// say about it; uses are those of its free addresses that host views show.
func (st *State) RetainForOthers(b *Block, uses []hosts.Use, r *Releasability) {
	if len(uses) > 0 {
		r.retain(RetainHostView, "%s is in use in %s, though the block does not record it", uses[0].Addr, uses[0])
	}
	if st.BlockObjects(b.CIDR) > 1 {
		r.retain(RetainConflict, "there are several block objects of this CIDR")
	}
	if st.BlockMayCover(b.CIDR) {
		r.retain(RetainNotRead, "not evaluated: a block that cannot be read may be of the same CIDR")
	}
	if name, unread := st.UnreadPod(); unread {
		r.retain(RetainNotRead, "not evaluated: pod %s could not be read, and may use an address of it", name)
	}
	if b.Pool == nil && len(st.Unreadable(blocks.Pools)) > 0 {
		r.retain(RetainNotRead, "not evaluated: a pool that cannot be read may be its own, and need it")
	}
	host := b.Owner.Node()
	if host == "" {
		return
	}
	own := 0
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner != b.Owner {
			continue
		}
		if own++; a.SoftDeleted {
			r.retain(RetainMarked, "its affinity is marked deleted, and has to go first")
		}
	}
	if own > 1 {
		r.retain(RetainConflict, "its owner has several affinity objects to it")
	}
	if own == 0 && st.AffinityMayExist(b.CIDR, host) {
		r.retain(RetainNotRead, "not evaluated: an affinity that cannot be read may be its own")
	}
	if h := st.nodeStates[host]; h != nil {
		switch {
		case h.Node == nil && st.UnreadableNode(h.Name):
			r.retain(RetainNotRead, "not evaluated: its node could not be read")
		case h.Node != nil && h.Node.Labels[flannelLabel] != "" && h.Node.Labels[flannelLabel] != flannelDone:
			r.retain(RetainSpecial, "its node is being moved from Flannel")
		}
	}
}

// UnrecordedUser names a live pod or a tunnel that uses an address of an empty
// block, as after a datastore was restored from a backup. Released, the block
// could be claimed again and the address be handed out a second time.
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
