package blocks

import (
	"cmp"
	"strings"
)

// Taint is a taint of a node (k8s.io/api/core/v1, Taint).
type Taint struct{ Key, Value, Effect string }

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Compare orders taints by key, value and effect.
func (t Taint) Compare(o Taint) int {
	return cmp.Or(strings.Compare(t.Key, o.Key), strings.Compare(t.Value, o.Value), strings.Compare(t.Effect, o.Effect))
}

// TaintOutOfService is the taint with which an administrator declares a node's machine shut
// down (k8s.io/api/core/v1, TaintNodeOutOfService).
const TaintOutOfService = LifeCycleTaints + "out-of-service"

// TaintNetwork is the taint of a node without a network. calico-node causes it when it ends, and
// removes the cause when it is Ready (node/pkg/lifecycle).
const TaintNetwork = LifeCycleTaints + "network-unavailable"

// Uninitialized are the taints of new nodes, by key, with the controller that removes each of them once.
var Uninitialized = map[string]string{
	"node.cloudprovider.kubernetes.io/uninitialized": "the cloud-controller-manager",
	"node.cluster.x-k8s.io/uninitialized":            "Cluster API",
}

// LifeCycleTaints is the key prefix of the taints that Kubernetes itself sets and removes.
const LifeCycleTaints = "node.kubernetes.io/"

// The taints that keep new pods off cordoned and not-ready nodes (k8s.io/kubernetes
// pkg/controller/nodelifecycle).
var (
	taintCordoned    = Taint{Key: LifeCycleTaints + "unschedulable", Effect: "NoSchedule"}
	taintNotReady    = Taint{Key: LifeCycleTaints + "not-ready", Effect: "NoSchedule"}
	taintUnreachable = Taint{Key: LifeCycleTaints + "unreachable", Effect: "NoSchedule"}
)

// Toleration is a toleration of a pod (k8s.io/api/core/v1, Toleration). An empty Key or
// Effect matches any. The Value matters only if Operator is Equal or empty.
type Toleration struct{ Key, Operator, Value, Effect string }

// Tolerates reports whether the toleration matches a taint.
func (t Toleration) Tolerates(x Taint) bool {
	return (t.Key == "" || t.Key == x.Key) && (t.Effect == "" || t.Effect == x.Effect) && (t.Value == x.Value || t.Operator != "" && t.Operator != "Equal")
}
