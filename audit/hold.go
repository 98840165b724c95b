package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// Hold is why an empty block is not released, in one word.
type Hold string

// Why an empty block is held.
const (
	// HeldSpecial: it is not a node's own, or its node is on its way from Flannel.
	HeldSpecial Hold = "special"
	// HeldMarked: it, or its owner's affinity, is marked deleted.
	HeldMarked Hold = "marked"
	// HeldCorrupt: it contradicts itself.
	HeldCorrupt Hold = "corrupt"
	// HeldLocked: the datastore is locked.
	HeldLocked Hold = "locked"
	// HeldUnknownAge: nothing tells how long it has been empty.
	HeldUnknownAge Hold = "unknown-age"
	// HeldYoung: it was written less than the grace ago.
	HeldYoung Hold = "young"
	// HeldInUse: a live pod or a tunnel uses an address that it does not record.
	HeldInUse Hold = "in-use"
	// HeldHostView: a node's kernel shows an address of it in use.
	HeldHostView Hold = "host-view"
	// HeldConflict: another object says something else about it.
	HeldConflict Hold = "conflict"
	// HeldLast: its node would keep no block.
	HeldLast Hold = "last"
	// HeldNotRead: something that the verdict needs was not read.
	HeldNotRead Hold = "not-read"
)

// hold notes why a block stays, unless it is held already.
func (r *Release) hold(code Hold, format string, args ...any) {
	if r.Held == "" {
		r.Code, r.Held = code, fmt.Sprintf(format, args...)
	}
}

// holdByOthers holds an empty block for what other objects and the nodes' kernels
// say about it.
func (st *State) holdByOthers(b *Block, r *Release) {
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		r.hold(HeldInUse, "%s, though the block does not record it", who)
	}
	if uses := st.HostContradictsFree(b); len(uses) > 0 {
		r.hold(HeldHostView, "%s is in use in %s, though the block does not record it", uses[0].Addr, uses[0])
	}
	if st.BlockObjects(b.CIDR) > 1 {
		r.hold(HeldConflict, "there are several block objects of this CIDR")
	}
	if name, unread := st.UnreadPod(); unread {
		r.hold(HeldNotRead, "not judged: pod %s could not be read, and may use an address of it", name)
	}
	if b.Pool == nil && len(st.Unreadable(blocks.Pools)) > 0 {
		r.hold(HeldNotRead, "not judged: a pool that cannot be read may be its own, and need it")
	}
	host := b.Owner.Node()
	if host == "" {
		return
	}
	own := 0
	for _, a := range st.Claims(b.CIDR) {
		if a.Owner != b.Owner {
			continue
		}
		if own++; a.SoftDeleted {
			r.hold(HeldMarked, "its affinity is marked deleted, and has to go first")
		}
	}
	if own > 1 {
		r.hold(HeldConflict, "its owner has several affinity objects to it")
	}
	if own == 0 && st.AffinityMayExist(b, host) {
		r.hold(HeldNotRead, "not judged: an affinity that cannot be read may be its own")
	}
	if h := st.hosts[host]; h != nil {
		switch {
		case h.Node == nil && st.UnreadableNode(h.Name):
			r.hold(HeldNotRead, "not judged: its node could not be read")
		case h.Node != nil && h.Node.Labels[flannelLabel] != "" && h.Node.Labels[flannelLabel] != flannelDone:
			r.hold(HeldSpecial, "its node is being moved from Flannel")
		}
	}
}

// BlockObjects returns how many block objects of exactly that CIDR exist. No
// verdict on a CIDR can rest on more than one.
func (st *State) BlockObjects(p blocks.Prefix) int {
	if st.own.byCIDR[p] == nil {
		return 0
	}
	return max(st.own.objects[p], 1)
}
