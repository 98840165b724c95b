package repair

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// A Right is what RBAC must allow: verbs on a resource of Calico's API group, or on
// Kubernetes' own. The ClusterRoles in examples/kubernetes/rbac-repair and
// rbac-repair-consolidate are the sum of those of all kinds of step.
type Right struct {
	Resource blocks.Resource
	Verbs    []string
}

// May is a right by its verbs, with spaces between them.
func May(r blocks.Resource, verbs string) Right { return Right{r, strings.Fields(verbs)} }

// Evictions is the subresource by which pods are evicted, Leases what one run at a time
// has that moves them.
const (
	Evictions blocks.Resource = "pods/eviction"
	Leases    blocks.Resource = "leases"
)

// LeaseRight is what [Workloads.AcquireLease] needs, of the one Lease in its namespace.
var LeaseRight = May(Leases, "get create update delete")
