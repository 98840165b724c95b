package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// previewStrict describes the effect of changing strict affinity. st is the present state; after is
// the state that the plan's other steps leave.
func previewStrict(st, after *state.State, want bool) *repair.StrictPreview {
	p := &repair.StrictPreview{
		From: st.IPAM.StrictAffinity, To: want, Borrowers: []string{},
		Starve: cannotAllocate(after, want), Windows: windowsNodes(st),
	}
	for _, b := range st.Borrows {
		p.Borrowers = append(p.Borrowers, fmt.Sprintf("%s of %s, used on %s by %s", b.Addr, b.Owner, b.User, borrower(b)))
	}
	p.MayStarve = mayStarve(after, want, p.Starve)
	if want {
		p.Unusable = unusable(after)
	}
	return p
}

// mayStarve lists the nodes that may be unable to allocate under a setting, without those in
// starve.
func mayStarve(st *state.State, strict bool, starve []string) blocks.Names {
	out := []string{}
	if strict {
		starving, _ := st.MayStarve()
		for _, node := range starving {
			if !slices.Contains(starve, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// borrower names the user of a borrowed address.
func borrower(b *state.Borrow) string {
	switch {
	case b.Workload != nil:
		return "pod " + b.Workload.FullName()
	case b.Tunnel:
		return "its tunnel"
	case b.Attributes != nil && b.Attributes.Pod != "":
		return "pod " + podName(b.Attributes) + ", which was not seen"
	}
	return "an unknown user"
}

// cannotAllocate lists the nodes whose next pod would get no address under a setting: they have no
// free address of their own, and can neither claim a block nor borrow. Unschedulable nodes count
// only if a pod already waits there.
func cannotAllocate(st *state.State, strict bool) blocks.Names {
	s := repair.NewPretence(st.Snapshot)
	s.IPAM.StrictAffinity = strict
	out := []string{}
	with := state.New(s.Done(), state.Options{Grace: max(st.Grace, 1)})
	families := with.Families
	for _, p := range with.Pools { // count all families with a pool if no pod has an address
		if len(with.Families) == 0 && p.Allows(blocks.UseWorkload) && !slices.Contains(families, p.Family()) {
			families = append(families, p.Family())
		}
	}
	for _, h := range with.NodeStates {
		if h.Node != nil && slices.ContainsFunc(families, func(f blocks.Family) bool {
			n := with.BlockStatusFor(h, f)
			return n.CannotAllocate() && (h.Schedulable || len(n.Waiting) > 0)
		}) {
			out = append(out, h.Name)
		}
	}
	return out
}

// unusable counts the free addresses in blocks without an owning node. Without strict affinity,
// nodes can borrow them; with it, no node can use them.
func unusable(st *state.State) int {
	n := 0
	for _, b := range st.IPBlocks {
		if b.Pool == nil || !b.Pool.ServesWorkloads() || !b.Usable() {
			continue
		}
		if b.Owner == (blocks.Owner{}) || st.Vanished(b.Owner.Node()) {
			n += st.Unused(b)
		}
	}
	return n
}

func windowsNodes(st *state.State) blocks.Names {
	out := []string{}
	for _, h := range st.NodeStates {
		if h.Node != nil && h.Node.Windows {
			out = append(out, h.Name)
		}
	}
	return out
}

// servicesBorrow names a pool whose LoadBalancer Services can only borrow: their own blocks have no
// free address, and no block is left to claim.
func servicesBorrow(st *state.State) string {
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		borrow, own := "", false
		for _, p := range st.Pools {
			if p.Family() != f || !p.HandsOut() || !p.Allows(blocks.UseLoadBalancer) {
				continue
			}
			own = own || !p.Slots.Allocatable.IsZero()
			for _, b := range p.Blocks {
				switch {
				case !b.Usable() || st.Unused(b) == 0:
				case b.Owner.Kind == blocks.VirtualOwner:
					own = true
				default:
					borrow = p.Name
				}
			}
		}
		if borrow != "" && !own {
			return borrow
		}
	}
	return ""
}

// namedElsewhere returns the pods that ask by name for an address of a block that their node does not
// own: with strict affinity on, they get no address when they start.
func namedElsewhere(st *state.State) (out []*blocks.Workload) {
	for _, w := range st.Named() {
		if w.Node != "" && slices.ContainsFunc(w.Extras().StaticIPs, func(a netip.Addr) bool {
			b := st.CoveringBlock(a)
			return b != nil && !b.SoftDeleted && b.Owner.Node() != w.Node
		}) {
			out = append(out, w)
		}
	}
	return out
}

// namedHere names the pods that ask by name for an address of a block of their own node, and that
// may start on another node next time.
func namedHere(st *state.State) (out blocks.Names) {
	nodes := slices.DeleteFunc(slices.Clone(st.NodeStates), func(h *state.NodeState) bool { return h.Node == nil })
	for _, w := range st.Named() {
		may := w.Placement.Matcher()
		leaves := func(h *state.NodeState) bool { return h.Name != w.Node && may(h.Node) }
		own := func(a netip.Addr) bool { b := st.CoveringBlock(a); return b != nil && b.Owner.Node() == w.Node }
		if w.Node != "" && w.Controller != nil && !w.OfDaemonSet() && slices.ContainsFunc(w.Extras().StaticIPs, own) && slices.ContainsFunc(nodes, leaves) {
			out = append(out, w.FullName())
		}
	}
	return out
}
