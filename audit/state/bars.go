package state

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reasons not to delete or restore an object. empty.go has the reasons to keep empty blocks, and
// the planner those that depend on other steps of a plan.

const (
	severalBlocks    = "there are several block objects of its CIDR"
	unreadBlock      = "its block may be among those that cannot be read"
	unreadPool       = "its pool may be among those that cannot be read"
	unreadAffinity   = "its affinity may be among those that cannot be read"
	onlyWay          = "the next pod on %s creates its block; without the affinity, the node could claim no other block (automatic blocks are off, or it is at the block limit), or could claim one that other nodes need"
	holdsBack        = "its CIDR is reserved, and it keeps %s at its block limit: without it, the node would claim one of the last blocks, which others need; add blocks or raise the limit first"
	lostWithAffinity = "its block is empty: the node claims it again when it needs it, and with an affinity Calico %s could give it to another node"
	corruptOwnership = "corrupt, so its owner is not certain: "
)

// The reads that each kind of repair needs. [ReleaseReads] are those of releases and moves.
var (
	DeleteAffinityReads  = ReleaseReads // the remaining blocks decide whether a node may claim another
	RestoreAffinityReads = ReleaseReads // releasable blocks must not be restored
	FinishDeleteReads    = append(slices.Clip(RecordIPReads), blocks.IPAMConfigs, blocks.Reservations, blocks.Namespaces)
	RecordIPReads        = []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.Nodes, blocks.Pods, blocks.Pools}
	ReleaseIPReads       = []blocks.Resource{blocks.Blocks, blocks.Handles, blocks.Nodes, blocks.Pods, blocks.IPAMConfigs, blocks.Pools}
	WhereaboutsReads     = []blocks.Resource{blocks.WhereaboutsPools, blocks.WhereaboutsReservations, blocks.NodeSlicePools, blocks.NetworkAttachments, blocks.Pods, blocks.Nodes}
	SetStrictReads       = []blocks.Resource{blocks.IPAMConfigs, blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.Reservations, blocks.Nodes, blocks.Pods, blocks.Namespaces}
	HandleReads          = []blocks.Resource{blocks.Handles, blocks.Blocks, blocks.Pods}
)

// ReadBar explains that a plan's reads are incomplete; none if they are complete.
func (st *State) ReadBar(reads []blocks.Resource) Bar {
	if g := st.Lacking(append([]blocks.Resource{blocks.ClusterInfos}, reads...)); g != nil {
		return Because(RetainNotRead, "a read that it needs is missing: %s", g)
	}
	return Bar{}
}

// PodBar blocks a plan that any pod could contradict, if a pod could not be decoded.
func (st *State) PodBar() Bar {
	if name, unread := st.UnreadPod(); unread {
		return Because(RetainNotRead, "pod %s could not be read and may be its user", name)
	}
	return Bar{}
}

// SlotBar blocks a plan that needs a free slot, if a block's CIDR could not be parsed.
func (st *State) SlotBar() Bar {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() {
			return Because(RetainNotRead, "block %s could not be read, so it is unknown whether a block is left to claim", g.Name)
		}
	}
	return Bar{}
}

// OwnerBar explains that an owner is not a node; none if it is one.
func OwnerBar(o blocks.Owner) Bar {
	switch {
	case o.Kind == blocks.VirtualOwner:
		return Because(RetainSpecial, "it serves LoadBalancer services")
	case o.Kind != blocks.HostOwner:
		return Because(RetainSpecial, "its owner is written as %q, which Calico does not understand", o)
	}
	return Bar{}
}

// NoBlockBar explains why an affinity must stay although its block is gone: addresses of its CIDR
// are in use, and only the affinity keeps other nodes from claiming the CIDR.
func (st *State) NoBlockBar(p netip.Prefix) Bar {
	if name, unread := st.UnreadPod(); unread {
		return Because(RetainNotRead, "pod %s could not be read and may use an address of its CIDR", name)
	}
	if who := st.UnrecordedUser(p); who != "" {
		return Because(RetainInUse, "its block is gone, but %s: without the affinity another node could claim the CIDR", who)
	}
	if uses := st.Views.UsesIn(p); len(uses) > 0 {
		return Because(RetainHostView, "its block is gone, and %s of it is in use in %s", uses[0].Addr, uses[0])
	}
	return Bar{}
}

// DeleteAffinityBar explains why an affinity must stay; b is the block of its CIDR, or nil.
func (st *State) DeleteAffinityBar(a *blocks.Affinity, b *Block) Bar {
	special, written := OwnerBar(a.Owner), a.Written.Later(a.Created)
	switch {
	case special.Code != "":
		return special
	case b != nil && b.Owner.Kind == blocks.VirtualOwner:
		return OwnerBar(b.Owner) // the affinity may belong to the services, written without a type
	case st.BlockObjects(a.CIDR) > 1:
		return Because(RetainConflict, severalBlocks)
	case st.BlockMayCover(a.CIDR):
		return Because(RetainNotRead, unreadBlock)
	case st.AffinityMayExist(a.CIDR, a.Owner.Node()):
		return Because(RetainNotRead, "an affinity that cannot be read may have the same CIDR and node")
	case b != nil && len(b.Faults) > 0:
		return Because(RetainCorrupt, "its block is "+corruptOwnership+"%s", b.Faults[0])
	case !st.Lasts(a):
		return Because(RetainYoung, "it was written at %s, within the grace period: it may be a claim or a release in flight", written).Until(st.Due(written))
	case st.ClaimInFlight(a, b):
		return Because(RetainYoung, "its block was created or claimed within the grace period: it may be a claim in flight").Until(st.Due(b.ClaimedAt()))
	}
	if bar := st.affinityBar(a); bar.Code != "" || b != nil {
		return bar
	}
	return st.NoBlockBar(a.CIDR)
}

// FinishAffinityBar is DeleteAffinityBar for an affinity that is marked deleted.
func (st *State) FinishAffinityBar(a *blocks.Affinity, b *Block) Bar {
	special, young := OwnerBar(a.Owner), st.MarkBar(a.Meta)
	switch {
	case special.Code != "":
		return special
	case young.Code != "":
		return young
	case st.BlockObjects(a.CIDR) > 1:
		return Because(RetainConflict, severalBlocks)
	case st.BlockMayCover(a.CIDR):
		return Because(RetainNotRead, unreadBlock)
	case b == nil:
		return st.NoBlockBar(a.CIDR)
	case len(b.Faults) > 0:
		return Because(RetainCorrupt, "its block is "+corruptOwnership+"%s", b.Faults[0])
	case b.Owner != a.Owner:
		return Bar{}
	case st.lostWithAffinity(b):
		return Because(RetainHeals, lostWithAffinity, st.Cluster.CalicoVersion)
	case b.Used > 0:
		return Because(RetainInUse, "its block still names %s and holds %s: without the affinity no node would route it. Once it is gone (Calico removes it when it next reads it by name), --missing-affinities restores it", a.Owner, phrase.Plural(b.Used, "address"))
	}
	return st.limitBar(b)
}

// FinishBlockBar explains why a block that is marked deleted must not be deleted.
func (st *State) FinishBlockBar(b *Block) Bar {
	special, young, uses := Bar{}, st.MarkBar(b.Meta), st.Views.UsesIn(b.CIDR)
	if b.Owner != (blocks.Owner{}) {
		special = OwnerBar(b.Owner)
	}
	switch who := st.UnrecordedUser(b.CIDR); {
	case special.Code != "":
		return special
	case b.Used > 0:
		return Because(RetainInUse, "it is marked deleted and holds %s: the pods that use them must end first", phrase.Plural(b.Used, "address"))
	case len(b.Faults) > 0:
		return Because(RetainCorrupt, "it is corrupt: %s", b.Faults[0])
	case st.BlockObjects(b.CIDR) > 1:
		return Because(RetainConflict, severalBlocks)
	case st.BlockMayCover(b.CIDR):
		return Because(RetainNotRead, unreadBlock)
	case young.Code != "":
		return young
	case who != "":
		return Because(RetainInUse, "%s, although the block does not record it", who)
	case len(uses) > 0:
		return Because(RetainHostView, "%s of it is in use in %s", uses[0].Addr, uses[0])
	}
	own := 0
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner != b.Owner || a.SoftDeleted {
			continue
		}
		own++
		if bar := st.affinityBar(a); bar.Code != "" {
			return bar
		}
	}
	switch {
	case own > 1:
		return Because(RetainConflict, "its owner has several affinity objects to it")
	case own == 0 && st.AffinityMayExist(b.CIDR, b.Owner.Node()):
		return Because(RetainNotRead, unreadAffinity)
	}
	return Bar{}
}

// RestoreAffinityBar explains why a block's owner, a node, must not be given an affinity to it.
func (st *State) RestoreAffinityBar(b *Block) Bar {
	host, others := b.Owner.Node(), []string(nil) // others claim the CIDR, too
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner != b.Owner {
			others = append(others, strings.TrimSpace(a.Owner.String()))
		} else if a.SoftDeleted {
			return Because(RetainMarked, "its owner's affinity %s is marked deleted and still there: Calico removes it when it next reads it by name, and then it can be restored", a.Name)
		}
	}
	switch {
	case b.SoftDeleted:
		return Because(RetainMarked, "it is marked deleted: --soft-deleted finishes that")
	case len(b.Faults) > 0:
		return Because(RetainCorrupt, "it is "+corruptOwnership+"%s", b.Faults[0])
	case st.BlockObjects(b.CIDR) > 1:
		return Because(RetainConflict, severalBlocks)
	case st.AffinityMayExist(b.CIDR):
		return Because(RetainNotRead, unreadAffinity)
	case st.BlockMayCover(b.CIDR) || st.UnreadOfNode(host) > 0:
		return Because(RetainNotRead, "a block that cannot be read may belong to the node or have the same CIDR")
	case len(st.Unreadable(blocks.Pools)) > 0:
		return Because(RetainNotRead, "a pool that cannot be read may serve its node")
	case !st.NodesRead() || st.UnreadableNode(host):
		return Because(RetainNotRead, "its node %s could not be read", host)
	case st.Vanished(host):
		return Because(RetainConflict, "its host %s no longer exists: it needs no routes (--empty-blocks releases the block once it is empty)", host)
	case len(others) > 0:
		return Because(RetainConflict, "%s claims the CIDR, too: resolve that first (--orphan-affinities)", phrase.List(others))
	case st.lostWithAffinity(b):
		return Because(RetainHeals, lostWithAffinity, st.Cluster.CalicoVersion)
	case !st.ClaimPastGrace(b):
		return Because(RetainYoung, "it was created or claimed at %s, within the grace period: its claim may be under way", b.ClaimedAt()).Until(st.Due(b.ClaimedAt()))
	}
	for _, o := range st.BlocksAt(b.CIDR) {
		if o.CIDR != b.CIDR {
			return Because(RetainConflict, "block %s of %s overlaps it: both owners would have routes", o.CIDR, o.Owner)
		}
	}
	for _, br := range st.NodeState(host).Lent { // the affinity may give the node a blackhole route
		if p := st.Predict(br); br.Block == b && p.Outcome != affinity.Delivered && (b.Pool == nil || st.Routing.RoutesByAffinity(b.Pool.Pool)) {
			return Because(RetainInUse, "%s of it is in use on %s, and with the affinity %s may drop traffic to that address (%s): move its pod first (--rehome)", br.Addr, br.User, host, p.Reason)
		}
	}
	return st.limitBar(b)
}

// lostWithAffinity reports whether Calico could take an empty block from its node once the node
// has an affinity to it: v3.32 and newer take only blocks whose owner has an affinity.
func (st *State) lostWithAffinity(b *Block) bool {
	h := st.nodeStates[b.Owner.Node()]
	return b.Used == 0 && h != nil && h.Node != nil && st.IPAM.AutoAllocateBlocks && blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32)
}
