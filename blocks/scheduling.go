package blocks

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Scheduling holds a pod's rules for the scheduler, except its [Placement]. Pods with equal rules
// share it.
type Scheduling struct {
	// Requests are the pod's resource requests, as the scheduler counts them.
	Requests Quantities
	// HostPorts is true if the pod needs a port of its node.
	HostPorts bool
	// Undecided names a rule that is not evaluated, such as required pod affinity; empty if there is
	// none.
	Undecided string
	// Repels are the pods that its required pod anti-affinity keeps away.
	Repels []PodTerm
}

// Quantities are amounts by resource name, in thousandths. An absent name is 0.
type Quantities map[string]int64

// Subtract subtracts other. It stops at -1, so that no sum overflows.
func (r Quantities) Subtract(other Quantities) {
	for name, q := range other {
		r[name] -= min(q, r[name]+1)
	}
}

// Plus returns the sums of r and other.
func (r Quantities) Plus(other Quantities) Quantities {
	out := maps.Clone(r)
	for name, q := range other {
		out[name] += q
	}
	return out
}

// Holds reports whether r has at least the quantities of other.
func (r Quantities) Holds(other Quantities) bool {
	for name, q := range other {
		if q > r[name] {
			return false
		}
	}
	return true
}

// Names returns the names in order.
func (r Quantities) Names() []string { return slices.Sorted(maps.Keys(r)) }

// PodTerm selects pods of namespaces, as a term of a pod (anti-)affinity does.
type PodTerm struct {
	// Namespaces are those of the pods; empty means the namespace of the pod with the term.
	// AnyNamespace is true if a selector chooses them, which is not evaluated.
	Namespaces   []string
	AnyNamespace bool
	// Selector selects pods by label, in kubectl's syntax; all pods if it cannot be parsed.
	Selector string
}

// Matcher returns a function that reports whether a pod is selected by the term of a pod in a
// namespace. The labels of pods must have been read.
func (t PodTerm) Matcher(namespace string) func(*Workload) bool {
	selector, err := labels.Parse(t.Selector)
	return func(w *Workload) bool {
		in := t.AnyNamespace || slices.Contains(t.Namespaces, w.Namespace) || len(t.Namespaces) == 0 && w.Namespace == namespace
		return in && (err != nil || selector.Matches(labels.Set(w.Labels)))
	}
}
