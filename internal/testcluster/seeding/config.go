package seeding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"github.com/projectcalico/calico/libcalico-go/lib/options"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Pool creates an IPPool through Calico's client, which checks it and fills in
// defaults, as calicoctl does.
func (s *Seeder) Pool(ctx context.Context, name string, spec apiv3.IPPoolSpec) error {
	pool := apiv3.NewIPPool()
	pool.Name = name
	pool.Spec = spec
	if _, err := s.Calico.IPPools().Create(ctx, pool, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating pool %s: %w", name, err)
	}
	return nil
}

// RawPool creates an IPPool past Calico's client, as kubectl does: overlapping
// pools and missing defaults are possible. Only the CRD's schema is checked.
func (s *Seeder) RawPool(ctx context.Context, name string, spec map[string]any) error {
	return s.Cluster.Create(ctx, testcluster.CRDv1.Resource("ippools"), map[string]any{
		"metadata": map[string]any{"name": name}, "spec": spec,
	})
}

// EditPool changes the specification of an IPPool past Calico's client.
func (s *Seeder) EditPool(ctx context.Context, name string, change func(spec map[string]any)) error {
	return s.Cluster.Edit(ctx, testcluster.CRDv1.Resource("ippools"), "", name, func(object map[string]any) {
		change(object["spec"].(map[string]any))
	})
}

// Reservation creates an IPReservation: addresses that are not handed out.
func (s *Seeder) Reservation(ctx context.Context, name string, cidrs ...netip.Prefix) error {
	reservation := apiv3.NewIPReservation()
	reservation.Name = name
	for _, cidr := range cidrs {
		reservation.Spec.ReservedCIDRs = append(reservation.Spec.ReservedCIDRs, cidr.String())
	}
	if _, err := s.Calico.IPReservations().Create(ctx, reservation, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating reservation %s: %w", name, err)
	}
	return nil
}

// SetIPAMConfig writes the cluster-wide IPAM configuration, and creates it if
// need be. Combinations that Calico rejects are an error.
func (s *Seeder) SetIPAMConfig(ctx context.Context, cfg ipam.IPAMConfig) error {
	if err := s.Calico.IPAM().SetIPAMConfig(ctx, cfg); err != nil {
		return fmt.Errorf("writing the IPAM configuration: %w", err)
	}
	return nil
}

// LockDatastore sets or clears the mark that makes Calico's components leave
// the datastore alone, as calicoctl datastore migrate lock does.
func (s *Seeder) LockDatastore(ctx context.Context, locked bool) error {
	return s.Cluster.Edit(ctx, testcluster.CRDv1.Resource("clusterinformations"), "", "default", func(object map[string]any) {
		object["spec"].(map[string]any)["datastoreReady"] = !locked
	})
}

// SetLeakGrace sets how long kube-controllers waits until it takes an address for
// leaked or an empty block for spare; it looks for them twice in that time. What
// runs must be restarted.
func (s *Seeder) SetLeakGrace(ctx context.Context, grace time.Duration) error {
	return s.Cluster.EditControllers(ctx, func(spec map[string]any) {
		spec["controllers"].(map[string]any)["node"].(map[string]any)["leakGracePeriod"] = fmt.Sprint(grace)
	})
}

// unlessExists drops the error of a Calico object that exists already.
func unlessExists(err error) error {
	if exists := (cerrors.ErrorResourceAlreadyExists{}); errors.As(err, &exists) {
		return nil
	}
	return err
}
