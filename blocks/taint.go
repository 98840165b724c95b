package blocks

import (
	"cmp"
	"strings"
)

// Taint is a taint of a node (k8s.io/api/core/v1, Taint).
type Taint struct{ Key, Value, Effect string }

// Compare orders taints by key, value and effect.
func (t Taint) Compare(o Taint) int {
	return cmp.Or(strings.Compare(t.Key, o.Key), strings.Compare(t.Value, o.Value), strings.Compare(t.Effect, o.Effect))
}

// TaintOutOfService is the taint by which an administrator says that a node's
// machine is shut down (k8s.io/api/core/v1, TaintNodeOutOfService).
const TaintOutOfService = LifeCycleTaints + "out-of-service"

// LifeCycleTaints begins the keys of the taints that Kubernetes itself sets and removes.
const LifeCycleTaints = "node.kubernetes.io/"

// The taints of cordoned nodes and of nodes that are not ready, which keep new pods away
// (k8s.io/kubernetes pkg/controller/nodelifecycle).
var (
	taintCordoned    = Taint{Key: LifeCycleTaints + "unschedulable", Effect: "NoSchedule"}
	taintNotReady    = Taint{Key: LifeCycleTaints + "not-ready", Effect: "NoSchedule"}
	taintUnreachable = Taint{Key: LifeCycleTaints + "unreachable", Effect: "NoSchedule"}
)

// Toleration is a toleration of a pod (k8s.io/api/core/v1, Toleration): with an empty Key of
// any key, with an empty Effect of any effect, and of one value only if the Operator is Equal
// or empty.
type Toleration struct{ Key, Operator, Value, Effect string }

// Tolerates reports whether the toleration matches a taint.
func (t Toleration) Tolerates(x Taint) bool {
	return (t.Key == "" || t.Key == x.Key) && (t.Effect == "" || t.Effect == x.Effect) && (t.Value == x.Value || t.Operator != "" && t.Operator != "Equal")
}
