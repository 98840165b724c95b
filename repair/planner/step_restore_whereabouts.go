package planner

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// restoreWhereabouts restores the pool entry of a live pod's address, as Whereabouts writes it, if
// only the reservation is left. Until then only the reservation keeps the address from other pods
// of the range.
var restoreWhereabouts = &repair.StepKind{
	Kind:     repair.RestoreWhereabouts,
	Requires: state.WhereaboutsReads,
	Plain:    true,
	AllPods:  true,
	Exact:    []string{repair.GuardName, repair.GuardUID, repair.GuardReservationUID, repair.GuardPod, repair.GuardPodUID, repair.GuardContainer, repair.GuardInterface},
	Rights:   []repair.Right{repair.May(blocks.WhereaboutsPools, "get patch"), repair.May(blocks.WhereaboutsReservations, "get")},
	Propose: func(p *repair.Proposals) {
		v := whereabouts.Of(p.State)
		all := v.Lone()
		for i := range all {
			if l := &all[i]; l.User != nil && p.Wants(loneConcern(v, l).Target) {
				proposeRestoration(p, v, l)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.Namespaced(blocks.WhereaboutsPools, s.Guard(repair.GuardName))
		addLoneRefs(r, s)
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		v := whereabouts.Of(st)
		l := loneNamed(v, s.Target.Name)
		if l == nil || l.User == nil {
			return repair.DeletedError(s)
		}
		x, b := v.Restoration(l)
		if b.Code != "" || x.Pool.FullName() != s.Guard(repair.GuardName) || !stillRecorded(s, x.Owner) {
			return repair.DeletedError(s)
		}
		entry := repair.SecondaryAddress{Pool: x.Pool.FullName(), Offset: x.Pool.Offset(l.Addr), Owner: repair.SecondaryOwnerOf(x.Owner)}
		return w.RestoreWhereabouts(ctx, repair.PinOf(blocks.WhereaboutsPools, x.Pool.Namespace, x.Pool.Meta), entry, repair.PinOf(blocks.WhereaboutsReservations, l.Namespace, l.Meta))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if !restored(st, s) {
			return fmt.Errorf("pool %s does not record the address of %s for pod %s", s.Guard(repair.GuardName), s.Target.Name, s.Guard(repair.GuardPod))
		}
		if repair.ReservationNamed(st, s.Target.Name) == nil {
			return repair.LeftBehind(blocks.WhereaboutsReservations, s.Target.Name, "is gone, and pool %s records its address", s.Guard(repair.GuardName))
		}
		return nil
	},
	Undo: func(b *repair.Begun) repair.Move {
		if !restored(b.State, b.Step) {
			return repair.Nothing(repair.Already, "the address is not recorded for its pod any more")
		}
		return repair.Cannot(repair.SkipHarm, "the address is not taken out of its pool again: unrecorded, it could be given to another pod; once its pod has gone, --whereabouts-stranded releases it")
	},
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		var owner blocks.WhereaboutsOwner
		for i := range x.WhereaboutsReservations {
			if r := &x.WhereaboutsReservations[i]; r.Key().String() == s.Target.Name {
				owner = r.WhereaboutsOwner
			}
		}
		owner.ContainerID, owner.Interface = s.Guard(repair.GuardContainer), s.Guard(repair.GuardInterface)
		for i := range x.WhereaboutsPools {
			if a := loneAddr(&x.WhereaboutsPools[i], s); a.IsValid() {
				setSecondary(x, s.Guard(repair.GuardName), a, &blocks.WhereaboutsAllocation{Addr: a, WhereaboutsOwner: owner})
			}
		}
	},
}

// loneAddr is the address of a step's reservation if the step records it in pool p; otherwise the
// zero Addr.
func loneAddr(p *blocks.WhereaboutsPool, s *repair.Step) netip.Addr {
	for _, a := range repair.ReservationOf(s.Target.Name).Addresses() {
		if p.Key().String() == s.Guard(repair.GuardName) && p.Range.Masked().Contains(a) {
			return a
		}
	}
	return netip.Addr{}
}

// restored reports whether the pool records the entry that a step adds.
func restored(st *state.State, s *repair.Step) bool {
	p := repair.SecondaryPoolNamed(st, s.Guard(repair.GuardName))
	if p == nil {
		return false
	}
	now := recordedInPool(st, s.Guard(repair.GuardName), loneAddr(p, s))
	return now != nil && stillRecorded(s, now.WhereaboutsOwner)
}

func proposeRestoration(p *repair.Proposals, v *whereabouts.Verdicts, l *whereabouts.LoneReservation) {
	c := loneConcern(v, l)
	x, b := v.Restoration(l)
	if b.Code != "" {
		p.Refuse(c, retainCodes[b.Code], "pod %s uses %s, which no pool records for it, but %s", l.User.FullName(), l.Addr, b.Reason)
		return
	}
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("pod %s uses %s, but only reservation %s records it, and pool %s does not", l.User.FullName(), l.Addr, l.Key(), x.Pool.FullName()),
		Evidence: state.Evidences("address", l.Addr, "pool", x.Pool.FullName(), "range", x.Pool.RangeText, "pod", l.User.FullName(), "node", l.User.Node,
			"interface", x.Owner.Interface, "container", x.Owner.ContainerID),
		Guards: repair.Guards(repair.GuardName, x.Pool.FullName(), repair.GuardUID, x.Pool.UID(), repair.GuardReservationUID, l.UID(), repair.GuardPod, l.User.FullName(),
			repair.GuardPodUID, l.User.UID(), repair.GuardContainer, x.Owner.ContainerID, repair.GuardInterface, x.Owner.Interface),
	}, x.Pool.Meta, l.Meta)
}
