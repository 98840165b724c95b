package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/repair"
)

// ReleaseWhereabouts removes an address from its pool and then deletes its reservation,
// as Whereabouts does (pkg/storage/kubernetes, IPManagementKubernetesUpdate). If a run
// dies in between, the remaining reservation keeps the address for its former pod,
// because Whereabouts does not assign an address that another pod has reserved.
func (w *Writer) ReleaseWhereabouts(ctx context.Context, pool repair.ObjectRef, entry repair.SecondaryAddress, reservation *repair.ObjectRef, beside []repair.SecondaryAddress) error {
	var key string
	return w.step(ctx, "releasing an address of", pool, func(_ context.Context, o *object) error {
		found, is := entryAt(o, entry.Offset)
		if key = found; key == "" || is != entry.Owner {
			return changedf("%s does not record %s for it any more", o, ownerText(entry.Owner))
		}
		return nil
	}, func(ctx context.Context, o *object) error {
		e := newEdit(o)
		e.remove("spec", "allocations", key)
		if _, err := w.patch(ctx, o, e); err != nil || reservation == nil {
			return err
		}
		r, err := w.evaluated(ctx, *reservation)
		if err == nil {
			err = w.deleteReservation(ctx, r, append(beside, entry))
		}
		switch {
		case err == nil, isChanged(err): // the reservation was deleted; or another client wrote it or uses the address again, and keeps it
			return nil
		case isLeft(err):
			return err
		}
		return leftBehind(blocks.WhereaboutsReservations, reservation.Name, leftUnrecorded, err)
	})
}

// DeleteWhereaboutsReservation deletes a reservation whose address no pool records.
func (w *Writer) DeleteWhereaboutsReservation(ctx context.Context, reservation repair.ObjectRef, pools []repair.SecondaryAddress) error {
	return w.step(ctx, "deleting", reservation, nothing, func(ctx context.Context, r *object) error { return w.deleteReservation(ctx, r, pools) })
}

// leftUnrecorded describes a reservation that keeps its address although no pool records it.
const leftUnrecorded = "is left, and no pool records its address"

func nothing(context.Context, *object) error { return nil }

// deleteReservation deletes a reservation unless a pool records its address. A new pod of
// the same name uses the existing reservation without writing it, and may have read it
// before its deletion. In that case a pool then records the address, and the reservation
// is restored.
func (w *Writer) deleteReservation(ctx context.Context, r *object, pools []repair.SecondaryAddress) error {
	_, tree, err := w.asStored(blocks.WhereaboutsReservations, r.raw)
	if err != nil {
		return err
	}
	switch in, err := w.recordedIn(ctx, pools, ""); {
	case err != nil:
		return err
	case in != "":
		return changedf("pool %s now records the address of %s", in, r)
	}
	if err := w.remove(ctx, r); err != nil {
		return err
	}
	again, err := w.reserveClaimed(ctx, tree, pools)
	if err == nil && again {
		return changedf("pod %s has the address again, and its reservation is as it was", r.text("spec", "podref"))
	}
	return err
}

// ReserveWhereabouts waits until Whereabouts can no longer act on the deleted
// reservation. It recreates the reservation if a pool records its address for its pod.
func (w *Writer) ReserveWhereabouts(ctx context.Context, stored json.RawMessage, pools []repair.SecondaryAddress) error {
	return w.stepOn(ctx, "reserving an address of a secondary network again", nil, nil, nothing, func(ctx context.Context, _ *object) error {
		_, tree, err := w.asStored(blocks.WhereaboutsReservations, stored)
		if err == nil {
			_, err = w.reserveClaimed(ctx, tree, pools)
		}
		return err
	})
}

// reserveClaimed recreates a deleted reservation, and reports whether its pod has the
// address again. The pod may end before the reservation exists, so that its release does
// not find it; then reserveClaimed deletes the reservation again. Meanwhile another pod
// may have found no reservation and reserved the address for itself.
func (w *Writer) reserveClaimed(ctx context.Context, tree map[string]any, pools []repair.SecondaryAddress) (bool, error) {
	name, pod := nameOf(tree), textOf(tree, "spec", "podref")
	left := func(state string, err error) (bool, error) {
		return false, leftBehind(blocks.WhereaboutsReservations, name, state, err)
	}
	for {
		in, err := w.claimedBy(ctx, pools, pod)
		switch {
		case err != nil:
			return left("is deleted, and it is not known whether its pod has the address again", err)
		case in == "":
			return false, nil
		}
		made, err := w.create(ctx, blocks.WhereaboutsReservations, tree)
		now := made
		if isChanged(err) {
			now, err = w.get(ctx, blocks.WhereaboutsReservations, name)
		}
		if err != nil {
			return left("is deleted, and pool "+in+" records its address again", err)
		}
		in, err = w.recordedIn(ctx, pools, pod)
		switch {
		case err != nil:
			return left("exists again, and it is not known whether its pod still has the address", err)
		case now == nil:
			continue
		case in != "" && now.text("spec", "podref") != pod:
			return false, repair.LeftBehind(blocks.WhereaboutsReservations, name, repair.BothHave, now.text("spec", "podref"), in, pod)
		case in != "" || made == nil:
			return in != "", nil
		}
		switch err := w.remove(ctx, made); {
		case isChanged(err): // another client wrote it and keeps it
			return false, nil
		case err != nil:
			return left(leftUnrecorded, err)
		}
	}
}

// claimedBy returns the first pool that records an address for a pod whose reservation
// was just deleted, or "". While a pod of that name exists, it keeps checking for as long
// as Whereabouts may act on the reservation that it read.
func (w *Writer) claimedBy(ctx context.Context, pools []repair.SecondaryAddress, pod string) (string, error) {
	if pod == "" { // Whereabouts treats a reservation without a pod as another pod's
		return "", nil
	}
	for until := time.Now().Add(w.wait.claim); ; {
		last := !time.Now().Before(until)
		in, err := w.recordedIn(ctx, pools, pod)
		if err != nil || in != "" || last {
			return in, err
		}
		switch exists, err := w.podExists(ctx, pod); {
		case err != nil || !exists:
			return "", err
		case !request.Pause(ctx, 5*w.wait.poll, nil):
			return "", ctx.Err()
		}
	}
}

// podExists reports whether a pod exists, by "namespace/name". It lists pods because the
// role for planning allows list but not get.
func (w *Writer) podExists(ctx context.Context, pod string) (bool, error) {
	namespace, name, _ := strings.Cut(pod, "/")
	found := false
	err := w.list(ctx, blocks.Pods, Query{Namespace: namespace, Name: name}, func(json.RawMessage) error {
		found = true
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("reading pod %s: %w", pod, err)
	}
	return found, nil
}

// recordedIn returns the first pool that records an address, for the given pod unless
// that is "". It returns "" if there is none.
func (w *Writer) recordedIn(ctx context.Context, pools []repair.SecondaryAddress, pod string) (string, error) {
	for _, p := range pools {
		o, err := w.get(ctx, blocks.WhereaboutsPools, p.Pool)
		if err != nil {
			return "", err
		}
		if o == nil {
			continue
		}
		if key, owner := entryAt(o, p.Offset); key != "" && (pod == "" || owner.Pod == pod) {
			return p.Pool, nil
		}
	}
	return "", nil
}

// RestoreWhereabouts adds the entry of a reservation in use to its pool.
func (w *Writer) RestoreWhereabouts(ctx context.Context, pool repair.ObjectRef, entry repair.SecondaryAddress, reservation repair.ObjectRef) error {
	return w.step(ctx, "recording an address in", pool, func(ctx context.Context, o *object) error {
		if _, err := w.evaluated(ctx, reservation); err != nil {
			return err
		}
		return freeAt(o, entry.Offset)
	}, func(ctx context.Context, o *object) error {
		owner := map[string]any{"id": entry.Owner.Container, "podref": entry.Owner.Pod, "ifname": entry.Owner.Interface}
		return w.setEntry(ctx, o, entry.Offset, owner)
	})
}

// RecordWhereabouts restores the stored reservation, and then the stored pool's entry.
func (w *Writer) RecordWhereabouts(ctx context.Context, pool *repair.ObjectRef, offset uint64, was, reservation json.RawMessage) error {
	var o *object
	var err error
	doing := "recording an address of a secondary network again"
	if pool != nil {
		o, err = w.evaluated(ctx, *pool)
	}
	var entry any
	return w.stepOn(ctx, doing, o, err, func(_ context.Context, o *object) error {
		if o == nil {
			return nil
		}
		stored, err := parseObject(blocks.WhereaboutsPools, was)
		if err != nil {
			return fmt.Errorf("reading a pool of the journal: %w", err)
		}
		key, _ := entryAt(stored, offset)
		if entry, _ = dig(stored.tree, "spec", "allocations", key); entry == nil {
			return fmt.Errorf("the journal's record of %s lacks the address", stored)
		}
		return freeAt(o, offset)
	}, func(ctx context.Context, o *object) error {
		var made *object
		if reservation != nil {
			var err error
			if made, err = w.reserveAgain(ctx, reservation); err != nil || o == nil {
				return err
			}
		}
		err := w.setEntry(ctx, o, offset, entry)
		if err != nil && made != nil {
			return leftBehind(blocks.WhereaboutsReservations, made.name(), leftUnrecorded, err)
		}
		return err
	})
}

// reserveAgain recreates a reservation as it was stored, and returns it. An existing one must be for
// the same pod; then reserveAgain returns nil.
func (w *Writer) reserveAgain(ctx context.Context, stored json.RawMessage) (made *object, err error) {
	was, tree, err := w.asStored(blocks.WhereaboutsReservations, stored)
	if err != nil {
		return nil, err
	}
	now, err := w.get(ctx, blocks.WhereaboutsReservations, was.name())
	switch {
	case err != nil:
		return nil, err
	case now == nil:
		return w.create(ctx, blocks.WhereaboutsReservations, tree)
	case now.text("spec", "podref") != was.text("spec", "podref"):
		return nil, changedf("%s belongs to pod %s", now, now.text("spec", "podref"))
	}
	return nil, nil
}

func (w *Writer) setEntry(ctx context.Context, pool *object, offset uint64, entry any) error {
	e := newEdit(pool)
	if mapAt(pool.tree, "spec", "allocations") == nil {
		e.set(map[string]any{}, "spec", "allocations")
	}
	e.set(entry, "spec", "allocations", strconv.FormatUint(offset, 10))
	_, err := w.patch(ctx, pool, e)
	return err
}

// entryAt returns the key and owner of an offset in a pool, or "" without an entry.
// Whereabouts parses the key as a number in any notation.
func entryAt(pool *object, offset uint64) (string, repair.SecondaryOwner) {
	for key, entry := range mapAt(pool.tree, "spec", "allocations") {
		if n, err := strconv.ParseInt(key, 10, 64); err == nil && n >= 0 && uint64(n) == offset {
			return key, repair.SecondaryOwner{Pod: textOf(entry, "podref"), Container: textOf(entry, "id"), Interface: textOf(entry, "ifname")}
		}
	}
	return "", repair.SecondaryOwner{}
}

func freeAt(pool *object, offset uint64) error {
	if key, owner := entryAt(pool, offset); key != "" {
		return changedf("%s now records the address for %s", pool, ownerText(owner))
	}
	return nil
}

func ownerText(o repair.SecondaryOwner) string {
	return fmt.Sprintf("pod %s, container %s, interface %s", o.Pod, o.Container, o.Interface)
}
