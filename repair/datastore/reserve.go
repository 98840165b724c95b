package datastore

import (
	"context"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Reserve creates an IPReservation, so that automatic assignment skips a block. mark is
// the value of the annotation that describes its purpose and permits calico-audit to
// delete it. If the IPReservation exists, the error is [repair.ErrChanged].
func (w *Writer) Reserve(ctx context.Context, cidr netip.Prefix, mark string) error {
	name := remedies.ReservationName(cidr)
	return w.stepOn(ctx, "reserving "+cidr.String(), nil, nil, func(ctx context.Context, _ *object) error {
		now, err := w.get(ctx, blocks.Reservations, name)
		if err == nil && now != nil {
			err = changedf("%s exists by now", now)
		}
		return err
	}, func(ctx context.Context, _ *object) error {
		tree, err := w.newObject(blocks.Reservations, name, apiv3.IPReservationSpec{ReservedCIDRs: []string{cidr.String()}}, nil, map[string]string{blocks.OursAnnotation: mark})
		if err == nil {
			_, err = w.create(ctx, blocks.Reservations, tree)
		}
		return err
	})
}

// Unreserve deletes an IPReservation with calico-audit's annotation.
func (w *Writer) Unreserve(ctx context.Context, reservation repair.ObjectRef) error {
	return w.step(ctx, "taking back", reservation, func(_ context.Context, o *object) error {
		if o.text("metadata", "annotations", blocks.OursAnnotation) == "" {
			return fmt.Errorf("%s was not created by calico-audit: it lacks the annotation %s", o, blocks.OursAnnotation)
		}
		return nil
	}, w.remove)
}
