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

// Pool creates an IPPool through Calico's client, which validates it and sets defaults,
// as calicoctl does.
func (s *Seeder) Pool(ctx context.Context, name string, spec apiv3.IPPoolSpec) error {
	pool := apiv3.NewIPPool()
	pool.Name = name
	pool.Spec = spec
	if _, err := s.Calico.IPPools().Create(ctx, pool, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating pool %s: %w", name, err)
	}
	return nil
}

// RawPool creates an IPPool without Calico's client, as kubectl does. Overlapping pools
// and missing defaults are possible; only the CRD's schema is validated.
func (s *Seeder) RawPool(ctx context.Context, name string, spec map[string]any) error {
	return s.Cluster.Create(ctx, testcluster.CRDv1.Resource("ippools"), map[string]any{
		"metadata": map[string]any{"name": name}, "spec": spec,
	})
}

// EditPool changes the spec of an IPPool without Calico's client.
func (s *Seeder) EditPool(ctx context.Context, name string, change func(spec map[string]any)) error {
	return s.Cluster.Edit(ctx, testcluster.CRDv1.Resource("ippools"), "", name, func(object map[string]any) {
		change(object["spec"].(map[string]any))
	})
}

// Reservation creates an IPReservation, whose addresses are never assigned.
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

// SetIPAMConfig creates or updates the IPAM configuration of the cluster. It returns an
// error for combinations that Calico rejects.
func (s *Seeder) SetIPAMConfig(ctx context.Context, cfg ipam.IPAMConfig) error {
	if err := s.Calico.IPAM().SetIPAMConfig(ctx, cfg); err != nil {
		return fmt.Errorf("writing the IPAM configuration: %w", err)
	}
	return nil
}

// LockDatastore sets or clears the lock that makes Calico's components stop using the
// datastore, like calicoctl datastore migrate lock.
func (s *Seeder) LockDatastore(ctx context.Context, locked bool) error {
	return s.Cluster.Edit(ctx, testcluster.CRDv1.Resource("clusterinformations"), "", "default", func(object map[string]any) {
		object["spec"].(map[string]any)["datastoreReady"] = !locked
	})
}

// SetLeakGrace sets how long kube-controllers waits before it considers an address leaked
// or an empty block spare. It checks twice in that time. A running kube-controllers must
// be restarted.
func (s *Seeder) SetLeakGrace(ctx context.Context, grace time.Duration) error {
	return s.Cluster.EditControllers(ctx, func(spec map[string]any) {
		spec["controllers"].(map[string]any)["node"].(map[string]any)["leakGracePeriod"] = fmt.Sprint(grace)
	})
}

// unlessExists drops the error about a Calico object that already exists.
func unlessExists(err error) error {
	if exists := (cerrors.ErrorResourceAlreadyExists{}); errors.As(err, &exists) {
		return nil
	}
	return err
}
