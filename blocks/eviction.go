package blocks

import "k8s.io/apimachinery/pkg/labels"

// OursAnnotation marks the temporary changes of this program, which it reverts later:
// reservations that it created and nodes that it cordoned. The writer chooses the value.
const OursAnnotation = "calico-audit/consolidation"

// Controller is the owner reference of the controller that manages a pod and recreates it.
type Controller struct {
	// Kind is the owner's kind, such as "ReplicaSet"; "Node" for the mirror of a static
	// pod.
	Kind, Name, UID string
}

// OfDaemonSet reports whether a DaemonSet manages the pod. Its replacement starts on the
// same node, even if that is cordoned.
func (w *Workload) OfDaemonSet() bool { return w.Controller != nil && w.Controller.Kind == "DaemonSet" }

// DisruptionBudget is a PodDisruptionBudget (policy/v1).
type DisruptionBudget struct {
	Meta
	Namespace string
	// Selector selects pods of the namespace by label, in kubectl's syntax; empty selects
	// all pods. SelectsNone is true if the object has no selector at all, which selects no
	// pods (k8s.io/api/policy/v1, PodDisruptionBudgetSpec).
	Selector    string
	SelectsNone bool
	// DisruptionsAllowed is the number of pods that may be evicted now, from the
	// controller's last count.
	DisruptionsAllowed int
}

// Key identifies the budget among all budgets.
func (b *DisruptionBudget) Key() Key { return Key{b.Namespace, b.Name} }

// Covers reports whether the budget selects a pod. The pod's labels must have been read.
func (b *DisruptionBudget) Covers(w *Workload) bool { return b.Coverage()(w) }

// Coverage returns Covers as a function that parses the selector only once.
func (b *DisruptionBudget) Coverage() func(*Workload) bool {
	selector, err := labels.Parse(b.Selector)
	return func(w *Workload) bool {
		return err == nil && !b.SelectsNone && b.Namespace == w.Namespace && selector.Matches(labels.Set(w.Labels))
	}
}

// MoverLease is the Lease of a run that moves pods. Known is false if Leases may not be read,
// or if no object carries [OursAnnotation], so that the Lease was not read. Live is true while
// a run renews it.
type MoverLease struct{ Known, Live bool }

// Marked returns the objects that carry [OursAnnotation].
func (s *Snapshot) Marked() (out []Ref) {
	for i := range s.Reservations {
		if r := &s.Reservations[i]; r.Ours != "" {
			out = append(out, Ref{Resource: Reservations, Name: r.Name})
		}
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Ours != "" {
			out = append(out, Ref{Resource: Nodes, Name: n.Name})
		}
	}
	return out
}

// The Lease of the run that moves pods.
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "calico-audit-consolidation"
)

// KnownRun is a run that its journal shows to have stopped before its end. Marks are the values of
// [OursAnnotation] that it set, and Objects those that its unfinished steps wrote.
type KnownRun struct {
	Journal string
	Marks   []string
	Objects []Ref
}
