package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// releaseWhereabouts removes the pool entry of a secondary network's address that its pod has given
// up, or that belonged to a deleted pod. It then deletes the address's reservation. Pod, sandbox
// and interface pin the entry, because its pool stays in use, and a pod recreated under the same
// name takes over this entry and writes its sandbox into it (pkg/allocate, AssignIP of
// Whereabouts).
var releaseWhereabouts = &repair.StepKind{
	Kind:       repair.ReleaseWhereabouts,
	Requires:   state.WhereaboutsReads,
	Plain:      true,
	Exact:      []string{repair.GuardUID, repair.GuardPod, repair.GuardPodUID, repair.GuardContainer, repair.GuardInterface, repair.GuardReservation, repair.GuardReservationUID, repair.GuardMachineOff},
	AllPods:    true,
	AsksHosts:  true,
	Rights:     []repair.Right{repair.May(blocks.WhereaboutsPools, "get patch"), repair.May(blocks.WhereaboutsReservations, "get create delete")},
	UndoRights: []repair.Right{repair.May(blocks.WhereaboutsPools, "get patch"), repair.May(blocks.WhereaboutsReservations, "get create delete")},
	Propose: func(p *repair.Proposals) {
		q := newAsker(p)
		for _, a := range q.Allocations {
			if p.Wants(secondaryConcern(a).Target) {
				proposeSecondary(q, a)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		v, at := whereabouts.Of(r.State), targetAddr(s)
		r.Namespaced(blocks.WhereaboutsPools, s.Target.Name)
		for _, a := range v.Recorded(at) {
			if a.Pool.FullName() == s.Target.Name {
				addSecondaryRefs(r, s, v.PoolsAt(a.Pool.Namespace, a.Pool.Network.Name, at), at)
				r.Namespaced(blocks.WhereaboutsReservations, a.ReservationKey().String())
				r.Node(a.Pool.Node)
				addMachines(r, v.Machines(a))
			}
		}
		addSecondaryRefs(r, s, nil, at)
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		v, at := whereabouts.Of(st), targetAddr(s)
		for _, a := range v.Recorded(at) {
			if a.Pool.FullName() != s.Target.Name || !stillRecorded(s, a.WhereaboutsOwner) {
				continue
			}
			var reservation *repair.ObjectRef
			if a.Reservation != nil {
				ref := repair.PinOf(blocks.WhereaboutsReservations, a.Reservation.Namespace, a.Reservation.Meta)
				reservation = &ref
			}
			entry := repair.SecondaryAddress{Pool: s.Target.Name, Offset: a.Pool.Offset(at), Owner: repair.SecondaryOwnerOf(a.WhereaboutsOwner)}
			return w.ReleaseWhereabouts(ctx, repair.PinOf(blocks.WhereaboutsPools, a.Pool.Namespace, a.Pool.Meta), entry, reservation,
				places(v.PoolsAt(a.Pool.Namespace, a.Pool.Network.Name, at), at))
		}
		return repair.DeletedError(s)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if now := recordedInPool(st, s.Target.Name, targetAddr(s)); now != nil && stillRecorded(s, now.WhereaboutsOwner) {
			return fmt.Errorf("%s is still recorded in pool %s", s.Target.IP, s.Target.Name)
		}
		return leftReservation(st, s.Guard(repair.GuardReservation), s.Guard(repair.GuardReservationUID), s.Guard(repair.GuardPod))
	},
	Complete: func(b *repair.Begun) repair.Move {
		if m := reserveAgain(b); !m.None() || verifyKind(b) == nil || recordedInPool(b.State, b.Step.Target.Name, targetAddr(b.Step)) != nil {
			return m
		}
		return deleteLone(b, b.Step.Guard(repair.GuardReservation))
	},
	Undo: recordSecondaryAgain,
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		setSecondary(x, s.Target.Name, targetAddr(s), nil)
		dropReservation(x, s.Guard(repair.GuardReservation), s.Guard(repair.GuardReservationUID))
	},
}

// targetAddr is the address that a step is about; the zero Addr if it names none.
func targetAddr(s *repair.Step) netip.Addr {
	a, _ := netip.ParseAddr(s.Target.IP)
	return a
}

// stillRecorded reports whether an owner is the one that a step was planned for.
func stillRecorded(s *repair.Step, o blocks.WhereaboutsOwner) bool {
	return o.Pod.String() == s.Guard(repair.GuardPod) && o.ContainerID == s.Guard(repair.GuardContainer) && o.Interface == s.Guard(repair.GuardInterface)
}

func secondaryConcern(a *whereabouts.Allocation) repair.Concern {
	t := a.Subject()
	return repair.Concern{Target: t, Pools: []string{a.Pool.FullName()}, Nodes: []string{t.Node}}
}

// proposeSecondary evaluates one allocation. It skips allocations that their own pods name.
func proposeSecondary(q *asker, a *whereabouts.Allocation) {
	c := secondaryConcern(a)
	if b := q.ReleaseBar(a); b.Code != "" {
		if !a.Named || q.Only != "" {
			q.Refuse(c, retainCodes[b.Code], "%s", b.Reason)
		}
		return
	}
	e := q.evidenceFor(a.Addr, a.WhereaboutsOwner, q.Machines(a), a.Pool.Assigned)
	if e.Code != "" {
		q.Refuse(c, retainCodes[e.Code], "no user was found (%s), but %s", a.Why, e.Reason)
		return
	}
	podUID, reservation, reservationUID, pinned := "", repair.Absent, "", []blocks.Meta{a.Pool.Meta}
	if a.Pod != nil {
		podUID, pinned = a.Pod.UID(), append(pinned, a.Pod.Meta)
	}
	if a.Reservation != nil {
		reservation, reservationUID, pinned = a.Reservation.Key().String(), a.Reservation.UID(), append(pinned, a.Reservation.Meta)
	}
	q.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("%s of pool %s is allocated, and no pod uses it: %s", a.Addr, a.Pool.FullName(), a.Why),
		Evidence: state.Evidences("pool", a.Pool.FullName(), "range", a.Pool.RangeText, "pod", a.WhereaboutsOwner.Pod, "container", a.ContainerID,
			"interface", a.Interface, "reservation", reservation, everyNode, repair.OnlyIf(a.Pool.Node == "", phrase.Plural(len(q.AllMachines()), "node")), "not in use", e.Evidence, "consent", repair.OnlyIf(e.Consent, withoutHostEvidence)),
		Guards: repair.Guards(repair.GuardUID, a.Pool.UID(), repair.GuardPod, a.WhereaboutsOwner.Pod.String(), repair.GuardPodUID, podUID, repair.GuardContainer, a.ContainerID,
			repair.GuardInterface, a.Interface, repair.GuardReservation, reservation, repair.GuardReservationUID, reservationUID, repair.GuardMachineOff, e.Off),
	}, pinned...)
}

// recordSecondaryAgain restores the entry and the reservation that a step removed, if nothing else
// has the address.
func recordSecondaryAgain(b *repair.Begun) repair.Move {
	c, at := b.Log.First(blocks.WhereaboutsPools), targetAddr(b.Step)
	pool := repair.SecondaryPoolNamed(b.State, b.Step.Target.Name)
	switch {
	case c == nil || c.Before == nil:
		return repair.Cannot(repair.SkipUnknown, "the journal does not hold the pool")
	case pool == nil:
		return repair.Cannot(repair.SkipDeleted, "its pool %s does not exist any more", b.Step.Target.Name)
	case pool.UID() != c.UID():
		return repair.Cannot(repair.SkipChanged, "its pool %s was deleted and created again since", b.Step.Target.Name)
	}
	// Addresses are stored as offsets from the range's address as written.
	if was := c.Was().Spec.Range; was != pool.RangeText {
		return repair.Cannot(repair.SkipChanged, "the range of its pool %s was %s, and is now %s, so the records there mean other addresses", b.Step.Target.Name, was, pool.RangeText)
	}
	v := whereabouts.Of(b.State)
	network := v.PoolNamed(b.Step.Target.Name).Network
	if m := usedSince(v, network, at, b.Step.Guard(repair.GuardPod)); !m.None() {
		return m
	}
	if recordedInPool(b.State, b.Step.Target.Name, at) != nil {
		return repair.Nothing(repair.Already, "the address is recorded again")
	}
	var reservation json.RawMessage
	if r := b.Log.First(blocks.WhereaboutsReservations); r != nil {
		if m := reservationAgain(v, r, network, at); !m.None() {
			return m
		}
		reservation = r.Before
	}
	if !b.Log.Freed {
		return repair.Cannot(repair.SkipUnknown, "the address is free, and the journal does not show that this run freed it: its node may have released it, and recorded again it would be stranded")
	}
	ref := repair.PinOf(blocks.WhereaboutsPools, pool.Namespace, pool.Meta)
	return repair.ToWrite(func(ctx context.Context) error {
		return b.Writer.RecordWhereabouts(ctx, &ref, pool.Offset(at), c.Before, reservation)
	}, "record the address in its pool again")
}
