package remedies

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// open reports whether the scheduler may put pods that tolerate the node's taints on it now. No pod
// is expected to tolerate a taint of the node life cycle, such as disk-pressure.
func open(h *state.NodeState) bool {
	return h.Node != nil && !h.Node.Unschedulable && !h.Node.OutOfService && !h.Node.NotReady && !h.Node.TemporarilyTainted()
}

// takesPods reports whether the scheduler may put any pod on the node now.
func takesPods(h *state.NodeState) bool { return open(h) && len(h.Node.KeepsAway()) == 0 }

// isFull reports whether a node has neither a free address in its own blocks for such a pod nor a
// block to claim.
func (st *Remedies) isFull(n *state.NodeBlockStatus) bool {
	windows := n.Host.Node != nil && n.Host.Node.Windows && !st.IPAM.StrictAffinity // Calico refuses
	return windows || st.unusedOfAnyPod(n, nil) == 0 && st.noneLeft(n)
}

// noneLeft reports whether a node cannot claim a block for such pods once its own blocks are full.
func (st *Remedies) noneLeft(n *state.NodeBlockStatus) bool {
	anyPods := slices.DeleteFunc(slices.Clone(n.Pools), func(p *state.Pool) bool { return !p.ServesAllNamespaces() || nextBlockAddresses(n, p).IsZero() })
	unfit := func(p *state.Pool) bool { // Calico claims such blocks, too
		return n.Host.Node != nil && n.Host.Node.Windows && nextBlockAddresses(n, p).IsZero() || st.NeededByOthers(n.Host, p) && !st.HealsItself(n, n.Pools)
	}
	cause, _ := st.CauseFor(n, anyPods)
	return n.Cause != state.CauseNone || cause != state.CauseNone || slices.ContainsFunc(n.Pools, unfit)
}

// unusedOfAnyPod counts a node's free addresses that pods of any namespace may use without
// requesting a pool. Addresses of block but do not count.
func (st *Remedies) unusedOfAnyPod(n *state.NodeBlockStatus, but *state.Block) (unused int) {
	for _, b := range n.Blocks {
		if b != but && st.servesAnyPod(n, b) {
			unused += st.Unused(b)
		}
	}
	return unused
}

// servesAnyPod reports whether a node assigns the free addresses of its block to pods of any
// namespace that request no pool.
func (st *Remedies) servesAnyPod(n *state.NodeBlockStatus, b *state.Block) bool {
	return slices.Contains(n.Pools, b.Pool) && b.Pool.ServesAllNamespaces() && st.AssignsFrom(b)
}

// spareOf counts how many pods of other nodes a node admits and has free addresses for in its own
// blocks.
func (st *Remedies) spareOf(n *state.NodeBlockStatus) int {
	return min(st.unusedOfAnyPod(n, nil), st.admits(n.Host))
}

// Full returns the uncordoned nodes that have neither an address of their own for another pod nor a
// block to claim, in some family. It covers nodes that take pods, and nodes whose taints a rehomed
// pod tolerates.
func (st *Remedies) Full() blocks.Names { return st.full() }

func (st *Remedies) findFull() blocks.Names {
	out := st.filled()
	now, _ := st.Rehomes()
	for _, m := range now {
		if !m.Pod.OfDaemonSet() && m.Pod.Placement != nil {
			out = append(out, st.crowded(m.demand())...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// filled returns the nodes that take pods now, although they have neither an address of their own for
// another pod nor a block to claim, in some family.
func (st *Remedies) filled() (out []string) {
	for _, h := range st.NodeStates {
		if takesPods(h) && !st.takers()[h.Name] {
			out = append(out, h.Name)
		}
	}
	return out
}

// asksForPools explains why a pod's replacement may find no address in a node's own blocks: the pod
// requests pools, is pinned to one, or a pool serves its namespace but not all. It returns "" if none
// applies.
func (st *Remedies) asksForPools(m Move) string {
	for f := range m.demand().families {
		if _, asks := st.RequestedPools(m.Pod, f); asks {
			return fmt.Sprintf("pod %s asks for pools by name, and it is not known which nodes have an address of these pools", m.Pod.FullName())
		}
		if pinned := st.PinnedPools(m.Pod, f); len(pinned) > 0 {
			return fmt.Sprintf("pod %s has an address of %s, which no object asks for. The CNI configuration may, so it is not known which nodes have an address for the pod", m.Pod.FullName(), state.PoolNames(pinned))
		}
		own := func(p *state.Pool) bool {
			return p.Family() == f && p.ServesWorkloads() && !p.ServesAllNamespaces() && p.SelectsNamespace(st.Namespace(m.Pod.Namespace))
		}
		if i := slices.IndexFunc(st.Pools, own); i >= 0 {
			return fmt.Sprintf("pool %s serves namespace %s, but not all namespaces, so it is not known which nodes have an address for pod %s", st.Pools[i].Name, m.Pod.Namespace, m.Pod.FullName())
		}
	}
	return ""
}
