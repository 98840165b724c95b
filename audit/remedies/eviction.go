package remedies

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// EvictionBar says why a pod must not be evicted, with any consent; empty if it may be.
// The annotations are those that the cluster autoscaler and the descheduler heed.
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
		return "has storage (a PersistentVolumeClaim) that may be bound to its node"
	case w.Controller != nil && w.Controller.Kind == "Job":
		return "is of Job " + w.Controller.Name + ", whose work would be lost"
	case w.Controller != nil && w.Controller.Kind == "Node":
		return "is a static pod"
	case w.RunsOnce:
		return "runs to completion (its restartPolicy is not Always), and its work would be lost"
	}
	return ""
}

// Unguarded reports whether evicting a pod ends what it does for a while, or for good: it
// has no controller, or no other pod of it is ready and no PodDisruptionBudget covers it.
// The pods of a DaemonSet are each the only one of their node. A budget that was not read
// covers none.
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

// budget is a PodDisruptionBudget and what it covers.
type budget struct {
	*blocks.DisruptionBudget
	covers func(*blocks.Workload) bool
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

// PodsOf returns the live pods of a controller, by its UID, less those that end. The slice
// is the caller's.
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

// answers reports whether a node exists and is ready.
func (st *Remedies) answers(node string) bool {
	h := st.NodeState(node)
	return h != nil && h.Node != nil && !h.Node.NotReady && !h.Node.OutOfService
}
