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

// ReleaseWhereabouts takes an address out of its pool, then deletes its reservation, as
// Whereabouts does (pkg/storage/kubernetes, IPManagementKubernetesUpdate). In this order a
// run that dies in between leaves the address to no one but the pod that had it: Whereabouts
// assigns none whose reservation is another pod's.
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
		case err == nil, isChanged(err): // deleted; or another wrote it by now, or has the address again, and keeps it
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

// deleteReservation deletes a reservation unless a pool records its address. A pod that is
// made again under its name takes its reservation for its own without writing it, and may
// have read it before it was deleted: the pool then records the address, and the reservation
// comes back.
func (k *Kubernetes) deleteReservation(ctx context.Context, r *object, pools []repair.SecondaryAddress) error {
	_, tree, err := k.asStored(blocks.WhereaboutsReservations, r.raw)
	if err != nil {
		return err
	}
	switch in, err := k.recordedIn(ctx, pools, ""); {
	case err != nil:
		return err
	case in != "":
		return changedf("pool %s records the address of %s by now", in, r)
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

// ReserveWhereabouts waits until Whereabouts does not go on any more by a reservation that was
// deleted, and creates it again if a pool records its address for its pod.
func (k *Kubernetes) ReserveWhereabouts(ctx context.Context, stored json.RawMessage, pools []repair.SecondaryAddress) error {
	return k.stepOn(ctx, "reserving an address of a secondary network again", nil, nil, nothing, func(ctx context.Context, _ *object) error {
		_, tree, err := k.asStored(blocks.WhereaboutsReservations, stored)
		if err == nil {
			_, err = k.reserveClaimed(ctx, tree, pools)
		}
		return err
	})
}

// reserveClaimed creates a reservation again that was deleted, and reports whether its pod has
// the address again. The pod may end, and its release find no reservation yet: what was
// created then goes again. In the meantime another pod may have found none, and reserved the
// address for itself.
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
		case isChanged(err): // somebody wrote it, and keeps it
			return false, nil
		case err != nil:
			return left("is left, and no pool records its address", err)
		}
	}
}

// claimedBy names the first of some pools that records an address for a pod whose
// reservation was deleted just now; "" if none does. While there is a pod of that name, it
// looks as long as Whereabouts may go on by the reservation that it read.
func (k *Kubernetes) claimedBy(ctx context.Context, pools []repair.SecondaryAddress, pod string) (string, error) {
	if pod == "" { // Whereabouts takes a reservation without a pod for another's
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

// podExists reports whether there is a pod, by "namespace/name". It is listed, which a role that
// makes plans may do, and not got.
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

// recordedIn names the first of some pools that records an address, for a pod if one is
// named; "" if none does.
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

// RestoreWhereabouts puts the entry of a reservation that is in use into its pool.
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

// RecordWhereabouts records an address again as a stored pool has it, after its reservation
// as that was stored.
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
			return fmt.Errorf("%s as written down does not record the address", stored)
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

// reserveAgain creates a reservation as it was stored. One that exists must be the pod's.
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

// entryAt returns the key under which a pool records an offset, and for whom; "" if it does
// not. Whereabouts reads a key as a number, however it is written.
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
		return changedf("%s records the address for %s by now", pool, ownerText(owner))
	}
	return nil
}

func ownerText(o repair.SecondaryOwner) string {
	return fmt.Sprintf("pod %s, container %s, interface %s", o.Pod, o.Container, o.Interface)
}
