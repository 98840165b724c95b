package remedies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// EvictionBar explains why a pod must not be evicted even with consent; empty if it may be. It
// honours the annotations of the cluster autoscaler and the descheduler.
func (st *Remedies) EvictionBar(w *blocks.Workload) string {
	switch {
	case w.Extras().VM != "":
		return "runs a virtual machine, which keeps its address wherever it runs: it migrates"
	case w.Extras().Unreadable != "":
		return "cannot be read: " + w.Extras().Unreadable
	case w.StaticAddress:
		return "asks for its address by name (cni.projectcalico.org/ipAddrs)"
	case w.NoEviction:
		return "is marked against eviction"
	case w.HasClaim:
		return "has storage (a PersistentVolumeClaim or hostPath) that may be bound to its node"
	case w.Controller != nil && w.Controller.Kind == "Job":
		return "belongs to Job " + w.Controller.Name + ", and its work would be lost"
	case w.Controller != nil && w.Controller.Kind == "Node":
		return "is a static pod"
	case w.RunsOnce:
		return "runs to completion (its restartPolicy is not Always), and its work would be lost"
	}
	return st.unschedulable(w)
}

// Unguarded reports whether evicting a pod interrupts its service, or ends it for good. That is so
// if the pod has no controller, or is its controller's only ready pod and no PodDisruptionBudget
// covers it. A budget that was not read covers no pod. DaemonSet pods never count: each is the only
// one on its node anyway.
func (st *Remedies) Unguarded(w *blocks.Workload) bool {
	switch {
	case w.Controller == nil:
		return true
	case w.OfDaemonSet():
		return false
	case slices.ContainsFunc(st.PodsOf(w.Controller.UID), func(o *blocks.Workload) bool { return o.Ready && o.Key() != w.Key() }):
		return false
	}
	return !slices.ContainsFunc(st.budgets()[w.Namespace], func(b budget) bool { return b.covers(w) })
}

// indexBudgets returns the budgets by namespace.
func (st *Remedies) indexBudgets() map[string][]budget {
	out := map[string][]budget{}
	for i := range st.Budgets {
		b := &st.Budgets[i]
		out[b.Namespace] = append(out[b.Namespace], budget{b, b.Coverage()})
	}
	return out
}

// exhausted returns a budget that covers a pod and allows no disruption now; nil if none.
func (st *Remedies) exhausted(w *blocks.Workload) *blocks.DisruptionBudget {
	for _, b := range st.budgets()[w.Namespace] {
		if b.DisruptionsAllowed < 1 && b.covers(w) {
			return b.DisruptionBudget
		}
	}
	return nil
}

// PodsOf returns the live pods of a controller, by its UID, without pods that are being deleted.
// The caller may change the slice.
func (st *Remedies) PodsOf(controller string) []*blocks.Workload {
	return slices.Clone(st.podsOf()[controller])
}

func (st *Remedies) indexControllers() map[string][]*blocks.Workload {
	out := map[string][]*blocks.Workload{}
	for _, w := range st.Workloads {
		if w.Controller != nil && w.Live() && w.Deleting.IsZero() {
			out[w.Controller.UID] = append(out[w.Controller.UID], w)
		}
	}
	return out
}

// UnguardedText names the pods that an eviction ends for good, or interrupts.
func UnguardedText(moves []Move) string {
	var bare, only, out blocks.Names
	for _, m := range moves {
		if m.Pod.Controller == nil {
			bare = append(bare, m.Pod.FullName())
		} else {
			only = append(only, m.Pod.FullName())
		}
	}
	if len(bare) > 0 {
		out = append(out, "pods gone for good, because no controller recreates them: "+bare.String())
	}
	if len(only) > 0 {
		out = append(out, "pods without another replica or a known PodDisruptionBudget, so that nothing serves meanwhile: "+only.String())
	}
	return strings.Join(out, "; ")
}

// Consents are the operator's permissions for a plan that moves pods.
type Consents struct {
	// CordonFull permits cordoning nodes without an address for a moved pod.
	CordonFull bool
	// EvictSingletons permits evicting pods without another ready replica.
	EvictSingletons bool
}

// Reasons not to evict a borrowing pod, in addition to those of package state.
const (
	// RetainNowhere: no known node would give the pod an address without borrowing.
	RetainNowhere state.RetainReason = "nowhere"
	// RetainConsent: the eviction needs a consent that was not given.
	RetainConsent state.RetainReason = "consent"
)

// RehomeBar explains why a pod of [Remedies.Rehomes] is not evicted with the given consents.
func (st *Remedies) RehomeBar(m Move, c Consents) state.Bar {
	full, few := st.Full(), st.few()
	name, unread := st.UnreadPod()
	why, slots := st.EvictionBar(m.Pod), st.SlotBar()
	switch {
	case unread:
		return state.Because(state.RetainNotRead, "pod %s could not be read", name)
	case slots.Code != "":
		return slots
	case why != "":
		return state.Because(state.RetainSpecial, "pod %s %s", m.Pod.FullName(), why)
	case m.Stays != "":
		return state.Because(RetainNowhere, "%s", m.Stays)
	case st.Unguarded(m.Pod) && !c.EvictSingletons:
		return state.Because(RetainConsent, "%s: consent with --evict-singletons", UnguardedText([]Move{m}))
	case few.pool != "":
		cordons := "the nodes that are cordoned for this would have to stay cordoned"
		if len(full) > 0 {
			cordons = full.String() + " would have to be cordoned, or it may borrow there again"
		}
		return state.Because(RetainNowhere, "%s, and %d of the %d nodes of pool %s were left to take pods, fewer than half: add a pool first", cordons, few.left, few.of, few.pool)
	case len(full) > 0 && !c.CordonFull:
		return state.Because(RetainConsent, "the scheduler may place it on a node without a free address, where it borrows again or waits: consent with --cordon-full, to cordon %s meanwhile", full)
	}
	return state.Bar{}
}

// answers reports whether a node exists and is ready.
func (st *Remedies) answers(node string) bool {
	h := st.NodeState(node)
	return h != nil && h.Node != nil && !h.Node.NotReady && !h.Node.OutOfService
}

// evictionRisk describes the cost of evictions. The plan names the pods and nodes.
func (st *Remedies) evictionRisk() string {
	if st.BudgetsKnown {
		return evictionRisk
	}
	return "pods restart one at a time; PodDisruptionBudgets are not known"
}

func withoutReplica(n int) string {
	return fmt.Sprintf("; pods without replica: %d", n)
}
