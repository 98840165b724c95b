package state

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// RetainReason is why an empty block is not released, in one word.
type RetainReason string

// Why an empty block is held.
const (
	// HeldSpecial: it is not a node's own, or its node is on its way from Flannel.
	HeldSpecial RetainReason = "special"
	// HeldMarked: it, or its owner's affinity, is marked deleted.
	HeldMarked RetainReason = "marked"
	// HeldCorrupt: it contradicts itself.
	HeldCorrupt RetainReason = "corrupt"
	// HeldLocked: the datastore is locked.
	HeldLocked RetainReason = "locked"
	// HeldUnknownAge: nothing tells how long it has been empty.
	HeldUnknownAge RetainReason = "unknown-age"
	// HeldYoung: it was written less than the grace ago.
	HeldYoung RetainReason = "young"
	// HeldInUse: a live pod or a tunnel uses an address that it does not record.
	HeldInUse RetainReason = "in-use"
	// HeldHostView: a node's kernel shows an address of it in use.
	HeldHostView RetainReason = "host-view"
	// HeldConflict: another object says something else about it.
	HeldConflict RetainReason = "conflict"
	// HeldLast: its node would keep no block.
	HeldLast RetainReason = "last"
	// HeldNotRead: something that the verdict needs was not read.
	HeldNotRead RetainReason = "not-read"
)

// retain notes why a block stays, unless it is held already.
func (r *Reclaimability) retain(code RetainReason, format string, args ...any) {
	if r.Held == "" {
		r.Code, r.Held = code, fmt.Sprintf(format, args...)
	}
}

// holdByOthers holds an empty block for what other objects and the nodes' kernels
// say about it.
func (st *State) holdByOthers(b *Block, r *Reclaimability) {
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		r.retain(HeldInUse, "%s, though the block does not record it", who)
	}
	if uses := st.HostContradictsFree(b); len(uses) > 0 {
		r.retain(HeldHostView, "%s is in use in %s, though the block does not record it", uses[0].Addr, uses[0])
	}
	if st.BlockObjects(b.CIDR) > 1 {
		r.retain(HeldConflict, "there are several block objects of this CIDR")
	}
	if name, unread := st.UnreadPod(); unread {
		r.retain(HeldNotRead, "not judged: pod %s could not be read, and may use an address of it", name)
	}
	if b.Pool == nil && len(st.Unreadable(blocks.Pools)) > 0 {
		r.retain(HeldNotRead, "not judged: a pool that cannot be read may be its own, and need it")
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
			r.retain(HeldMarked, "its affinity is marked deleted, and has to go first")
		}
	}
	if own > 1 {
		r.retain(HeldConflict, "its owner has several affinity objects to it")
	}
	if own == 0 && st.AffinityMayExist(b, host) {
		r.retain(HeldNotRead, "not judged: an affinity that cannot be read may be its own")
	}
	if h := st.nodeStates[host]; h != nil {
		switch {
		case h.Node == nil && st.UnreadableNode(h.Name):
			r.retain(HeldNotRead, "not judged: its node could not be read")
		case h.Node != nil && h.Node.Labels[flannelLabel] != "" && h.Node.Labels[flannelLabel] != flannelDone:
			r.retain(HeldSpecial, "its node is being moved from Flannel")
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
