package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// ReleaseWhereabouts removes an address from its pool and then deletes its reservation,
// as Whereabouts does (pkg/storage/kubernetes, IPManagementKubernetesUpdate). If a run
// dies in between, the remaining reservation keeps the address for its former pod,
// because Whereabouts does not assign an address that another pod has reserved.
func (k *Kubernetes) ReleaseWhereabouts(ctx context.Context, pool repair.ObjectRef, entry repair.SecondaryAddress, reservation *repair.ObjectRef, beside []repair.SecondaryAddress) error {
	var key string
	return k.step(ctx, "releasing an address of", pool, func(_ context.Context, o *object) error {
		found, is := entryAt(o, entry.Offset)
		if key = found; key == "" || is != entry.Owner {
			return changedf("%s does not record %s for it any more", o, ownerText(entry.Owner))
		}
		return nil
	}, func(ctx context.Context, o *object) error {
		e := newEdit(o)
		e.remove("spec", "allocations", key)
		if _, err := k.patch(ctx, o, e); err != nil || reservation == nil {
			return err
		}
		r, err := k.evaluated(ctx, *reservation)
		if err == nil {
			err = k.deleteReservation(ctx, r, append(beside, entry))
		}
		switch {
		case err == nil, isChanged(err): // the reservation was deleted; or another client wrote it or uses the address again, and keeps it
			return nil
		case isLeft(err):
			return err
		}
		return leftBehind(blocks.WhereaboutsReservations, reservation.Name, "is left, and no pool records its address", err)
	})
}

// DeleteWhereaboutsReservation deletes a reservation whose address no pool records.
func (k *Kubernetes) DeleteWhereaboutsReservation(ctx context.Context, reservation repair.ObjectRef, pools []repair.SecondaryAddress) error {
	return k.step(ctx, "deleting", reservation, nothing, func(ctx context.Context, r *object) error { return k.deleteReservation(ctx, r, pools) })
}

func nothing(context.Context, *object) error { return nil }

// deleteReservation deletes a reservation unless a pool records its address. A new pod of
// the same name uses the existing reservation without writing it, and may have read it
// before its deletion. In that case a pool then records the address, and the reservation
// is restored.
func (k *Kubernetes) deleteReservation(ctx context.Context, r *object, pools []repair.SecondaryAddress) error {
	_, tree, err := k.asStored(blocks.WhereaboutsReservations, r.raw)
	if err != nil {
		return err
	}
	switch in, err := k.recordedIn(ctx, pools, ""); {
	case err != nil:
		return err
	case in != "":
		return changedf("pool %s now records the address of %s", in, r)
	}
	if err := k.remove(ctx, r); err != nil {
		return err
	}
	again, err := k.reserveClaimed(ctx, tree, pools)
	if err == nil && again {
		return changedf("pod %s has the address again, and its reservation is as it was", r.text("spec", "podref"))
	}
	return err
}

// ReserveWhereabouts waits until Whereabouts can no longer act on the deleted
// reservation. It recreates the reservation if a pool records its address for its pod.
func (k *Kubernetes) ReserveWhereabouts(ctx context.Context, stored json.RawMessage, pools []repair.SecondaryAddress) error {
	return k.stepOn(ctx, "reserving an address of a secondary network again", nil, nil, nothing, func(ctx context.Context, _ *object) error {
		_, tree, err := k.asStored(blocks.WhereaboutsReservations, stored)
		if err == nil {
			_, err = k.reserveClaimed(ctx, tree, pools)
		}
		return err
	})
}

// reserveClaimed recreates a deleted reservation, and reports whether its pod has the
// address again. The pod may end before the reservation exists, so that its release does
// not find it; then reserveClaimed deletes the reservation again. Meanwhile another pod
// may have found no reservation and reserved the address for itself.
func (k *Kubernetes) reserveClaimed(ctx context.Context, tree map[string]any, pools []repair.SecondaryAddress) (bool, error) {
	name, pod := nameOf(tree), textOf(tree, "spec", "podref")
	left := func(state string, err error) (bool, error) {
		return false, leftBehind(blocks.WhereaboutsReservations, name, state, err)
	}
	for {
		in, err := k.claimedBy(ctx, pools, pod)
		switch {
		case err != nil:
			return left("is deleted, and it is not known whether its pod has the address again", err)
		case in == "":
			return false, nil
		}
		made, err := k.create(ctx, blocks.WhereaboutsReservations, tree)
		now := made
		if isChanged(err) {
			now, err = k.get(ctx, blocks.WhereaboutsReservations, name)
		}
		if err != nil {
			return left("is deleted, and pool "+in+" records its address again", err)
		}
		in, err = k.recordedIn(ctx, pools, pod)
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
		switch err := k.remove(ctx, made); {
		case isChanged(err): // another client wrote it and keeps it
			return false, nil
		case err != nil:
			return left("is left, and no pool records its address", err)
		}
	}
}

// claimedBy returns the first pool that records an address for a pod whose reservation
// was just deleted, or "". While a pod of that name exists, it keeps checking for as long
// as Whereabouts may act on the reservation that it read.
func (k *Kubernetes) claimedBy(ctx context.Context, pools []repair.SecondaryAddress, pod string) (string, error) {
	if pod == "" { // Whereabouts treats a reservation without a pod as another pod's
		return "", nil
	}
	for until := time.Now().Add(k.client.wait.claim); ; {
		last := !time.Now().Before(until)
		in, err := k.recordedIn(ctx, pools, pod)
		if err != nil || in != "" || last {
			return in, err
		}
		switch exists, err := k.podExists(ctx, pod); {
		case err != nil || !exists:
			return "", err
		case !sleep(ctx, 5*k.client.wait.poll):
			return "", ctx.Err()
		}
	}
}

// podExists reports whether a pod exists, by "namespace/name". It lists pods because the
// role for planning allows list but not get.
func (k *Kubernetes) podExists(ctx context.Context, pod string) (bool, error) {
	namespace, name, _ := strings.Cut(pod, "/")
	body, err := k.client.read(ctx, request{method: http.MethodGet, path: k.path(blocks.Pods, namespace+"/"), query: url.Values{"fieldSelector": {"metadata.name=" + name}}})
	if err != nil {
		return false, fmt.Errorf("reading pod %s: %w", pod, err)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return false, fmt.Errorf("reading pod %s: %w", pod, err)
	}
	return len(list.Items) > 0, nil
}

// recordedIn returns the first pool that records an address, for the given pod unless
// that is "". It returns "" if there is none.
func (k *Kubernetes) recordedIn(ctx context.Context, pools []repair.SecondaryAddress, pod string) (string, error) {
	for _, p := range pools {
		o, err := k.get(ctx, blocks.WhereaboutsPools, p.Pool)
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
func (k *Kubernetes) RestoreWhereabouts(ctx context.Context, pool repair.ObjectRef, entry repair.SecondaryAddress, reservation repair.ObjectRef) error {
	return k.step(ctx, "recording an address in", pool, func(ctx context.Context, o *object) error {
		if _, err := k.evaluated(ctx, reservation); err != nil {
			return err
		}
		return freeAt(o, entry.Offset)
	}, func(ctx context.Context, o *object) error {
		owner := map[string]any{"id": entry.Owner.Container, "podref": entry.Owner.Pod, "ifname": entry.Owner.Interface}
		return k.setEntry(ctx, o, entry.Offset, owner)
	})
}

// RecordWhereabouts restores the stored reservation, and then the stored pool's entry.
func (k *Kubernetes) RecordWhereabouts(ctx context.Context, pool *repair.ObjectRef, offset uint64, was, reservation json.RawMessage) error {
	var o *object
	var err error
	doing := "recording an address of a secondary network again"
	if pool != nil {
		o, err = k.evaluated(ctx, *pool)
	}
	var entry any
	return k.stepOn(ctx, doing, o, err, func(_ context.Context, o *object) error {
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
		if reservation != nil {
			if err := k.reserveAgain(ctx, reservation); err != nil || o == nil {
				return err
			}
		}
		return k.setEntry(ctx, o, offset, entry)
	})
}

// reserveAgain recreates a reservation as it was stored. An existing one must be for the
// same pod.
func (k *Kubernetes) reserveAgain(ctx context.Context, stored json.RawMessage) error {
	was, tree, err := k.asStored(blocks.WhereaboutsReservations, stored)
	if err != nil {
		return err
	}
	now, err := k.get(ctx, blocks.WhereaboutsReservations, was.name())
	switch {
	case err != nil:
		return err
	case now == nil:
		_, err = k.create(ctx, blocks.WhereaboutsReservations, tree)
		return err
	case now.text("spec", "podref") != was.text("spec", "podref"):
		return changedf("%s is that of pod %s", now, now.text("spec", "podref"))
	}
	return nil
}

func (k *Kubernetes) setEntry(ctx context.Context, pool *object, offset uint64, entry any) error {
	e := newEdit(pool)
	if mapAt(pool.tree, "spec", "allocations") == nil {
		e.set(map[string]any{}, "spec", "allocations")
	}
	e.set(entry, "spec", "allocations", strconv.FormatUint(offset, 10))
	_, err := k.patch(ctx, pool, e)
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
