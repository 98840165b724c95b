package blocks

import "k8s.io/apimachinery/pkg/labels"

// OursAnnotation marks what this program changed for a while, and takes back: the
// reservations that it made and the nodes that it cordoned. Its value is for the writer
// to choose.
const OursAnnotation = "calico-audit/consolidation"

// Controller is the owner reference by which a controller manages a pod, and makes
// another in its place.
type Controller struct {
	// Kind is the owner's, such as "ReplicaSet"; "Node" for the mirror of a static pod.
	Kind, Name, UID string
}

// OfDaemonSet reports whether a DaemonSet manages the pod: its replacement comes to the same
// node, cordoned or not.
func (w *Workload) OfDaemonSet() bool { return w.Controller != nil && w.Controller.Kind == "DaemonSet" }

// DisruptionBudget is a PodDisruptionBudget (policy/v1).
type DisruptionBudget struct {
	Meta
	Namespace string
	// Selector selects pods of the namespace by label, as kubectl writes selectors; empty
	// selects all of them. SelectsNone is true where the object has no selector at all,
	// which selects none (k8s.io/api/policy/v1, PodDisruptionBudgetSpec).
	Selector    string
	SelectsNone bool
	// DisruptionsAllowed is how many of the pods may be evicted now, by the controller's
	// last count.
	DisruptionsAllowed int
}

// Key names the budget among all budgets.
func (b *DisruptionBudget) Key() Key { return Key{b.Namespace, b.Name} }

// Covers reports whether the budget selects a pod whose labels were read.
func (b *DisruptionBudget) Covers(w *Workload) bool { return b.Coverage()(w) }

// Coverage returns [DisruptionBudget.Covers], for asking it of many pods.
func (b *DisruptionBudget) Coverage() func(*Workload) bool {
	selector, err := labels.Parse(b.Selector)
	return func(w *Workload) bool {
		return err == nil && !b.SelectsNone && b.Namespace == w.Namespace && selector.Matches(labels.Set(w.Labels))
	}
}
