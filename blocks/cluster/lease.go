package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/calico-audit/calico-audit/blocks"
)

// withLease adds the Lease of the run that moves pods, if an object carries a run's mark and Leases
// may be read. No audit needs that right. If no run holds the Lease, the marked objects are read
// again, because a run that has just ended removed its marks before it released the Lease.
func (k *Kubernetes) withLease(ctx context.Context, s *blocks.Snapshot) *blocks.Snapshot {
	marked := s.Marked()
	if len(marked) == 0 {
		return s
	}
	live, err := k.leaseLive(ctx)
	if err != nil {
		return s
	}
	if !live {
		at := s.Cluster.TakenAt
		again, err := k.Refresh(ctx, s, marked)
		if err != nil {
			return s
		}
		s, s.Cluster.TakenAt = again, at
	}
	s.Lease = blocks.MoverLease{Known: true, Live: live}
	return s
}

// leaseLive reports whether a run renews the Lease. The last renewal is the time that the API
// server recorded, by its own clock and in whole seconds.
func (k *Kubernetes) leaseLive(ctx context.Context) (bool, error) {
	var lease coordinationv1.Lease
	err := k.client.get(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+blocks.LeaseNamespace+"/leases/"+blocks.LeaseName, nil, "application/json",
		func(r io.Reader) error { return json.NewDecoder(r).Decode(&lease) })
	if codeOf(err) == http.StatusNotFound {
		return false, nil
	}
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.LeaseDurationSeconds == nil {
		return false, err
	}
	var renewed time.Time
	for _, f := range lease.ManagedFields {
		if f.Time != nil && f.Time.After(renewed) {
			renewed = f.Time.Time
		}
	}
	if renewed.IsZero() && lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	_, now := k.client.clock.dates()
	return now.Before(renewed.Add(time.Second + time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second)), nil
}
