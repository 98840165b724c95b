package repair

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// A Right is a permission that RBAC must grant: verbs on a resource of Calico's API group
// or of Kubernetes. The ClusterRoles in examples/kubernetes/rbac-repair and
// rbac-repair-consolidate contain the rights of all kinds of step.
type Right struct {
	Resource blocks.Resource
	Verbs    []string
}

// May returns a right with the given verbs, separated by spaces.
func May(r blocks.Resource, verbs string) Right { return Right{r, strings.Fields(verbs)} }

// Evictions is the subresource with which pods are evicted. Leases is the resource of the
// lease that a run holds while it moves pods.
const (
	Evictions blocks.Resource = "pods/eviction"
	Leases    blocks.Resource = "leases"
)

// LeaseRight is the right that [Workloads.AcquireLease] requires on the one Lease in its
// namespace.
var LeaseRight = May(Leases, "get create update delete")
