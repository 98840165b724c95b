package datastore

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Impatient shortens a writer's timeouts, for tests without an API server.
func (w *Writer) Impatient() *Writer {
	w.wait = waits{
		step: 5 * time.Second, request: 2 * time.Second, retry: []time.Duration{time.Millisecond, time.Millisecond},
		deletion: 200 * time.Millisecond, poll: 10 * time.Millisecond, claim: time.Second,
	}
	return w
}

// CoreGroups holds the API groups of the resources that are not Calico's.
var CoreGroups = map[blocks.Resource]string{
	blocks.Nodes: "", blocks.Pods: "", repair.Evictions: "", blocks.Budgets: "policy", repair.Leases: "coordination.k8s.io",
	blocks.WhereaboutsPools: "whereabouts.cni.cncf.io", blocks.WhereaboutsReservations: "whereabouts.cni.cncf.io",
}
