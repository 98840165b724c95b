package planner

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// deleteWhereaboutsReservation deletes a reservation that no pool explains and that belongs to no
// existing pod. Any pod that is offered its address fails or has to skip it.
var deleteWhereaboutsReservation = &repair.StepKind{
	Kind:       repair.DeleteWhereaboutsReservation,
	Requires:   state.WhereaboutsReads,
	Plain:      true,
	Exact:      []string{repair.GuardUID, repair.GuardVersion, repair.GuardCreated, repair.GuardPod, repair.GuardMachineOff},
	AllPods:    true,
	AsksHosts:  true,
	Rights:     []repair.Right{repair.May(blocks.WhereaboutsPools, "get"), repair.May(blocks.WhereaboutsReservations, "get create delete")},
	UndoRights: []repair.Right{repair.May(blocks.WhereaboutsReservations, "get create")},
	Propose: func(p *repair.Proposals) {
		q := newAsker(p)
		all := q.Lone()
		for i := range all {
			if l := &all[i]; p.Wants(loneConcern(q.Verdicts, l).Target) {
				proposeLone(q, l)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		addLoneRefs(r, s)
		addMachines(r, whereabouts.Of(r.State).AllMachines())
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		v := whereabouts.Of(st)
		l := loneNamed(v, s.Target.Name)
		if l == nil {
			return repair.DeletedError(s)
		}
		return w.DeleteWhereaboutsReservation(ctx, repair.PinOf(blocks.WhereaboutsReservations, l.Namespace, l.Meta), places(lonePools(v, l), l.Addr))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if r := repair.ReservationNamed(st, s.Target.Name); r != nil {
			if err := repair.Replaced(s, "reservation", r.Meta); err != nil {
				return err
			}
		}
		return leftReservation(st, s.Target.Name, s.Guard(repair.GuardUID), s.Guard(repair.GuardPod))
	},
	Complete: reserveAgain,
	Undo: func(b *repair.Begun) repair.Move {
		c := b.Log.First(blocks.WhereaboutsReservations)
		if c == nil || c.Before == nil {
			return repair.Cannot(repair.SkipUnknown, "the journal does not hold the reservation")
		}
		v := whereabouts.Of(b.State)
		for network, a := range repair.ReservationOf(c.Name).Addresses() {
			if m := reservationAgain(v, c, v.NetworkNamed(network, a), a); !m.None() {
				return m
			}
		}
		if repair.ReservationNamed(b.State, c.Name) != nil {
			return repair.Nothing(repair.Already, "the reservation is there again")
		}
		if !b.Log.Freed {
			return repair.Cannot(repair.SkipUnknown, "reservation %s is gone, and the journal does not show that this run deleted it: its pod may have released the address, and a restored reservation would block the address for everyone", c.Name)
		}
		return repair.ToWrite(func(ctx context.Context) error {
			return b.Writer.RecordWhereabouts(ctx, nil, 0, nil, c.Before)
		}, "create the reservation again")
	},
	Pretend: func(x *repair.Pretence, s *repair.Step) { dropReservation(x, s.Target.Name, s.Guard(repair.GuardUID)) },
}

// addLoneRefs adds the objects that decide about a reservation without an entry.
func addLoneRefs(r *repair.Refs, s *repair.Step) {
	r.Namespaced(blocks.WhereaboutsReservations, s.Target.Name)
	r.Namespaced(blocks.Pods, s.Guard(repair.GuardPod))
	v := whereabouts.Of(r.State)
	if found := repair.ReservationNamed(r.State, s.Target.Name); found != nil {
		for network, a := range found.Addresses() {
			addSecondaryRefs(r, s, v.PoolsAt(found.Namespace, network, a), a)
		}
	}
}

func lonePools(v *whereabouts.Verdicts, l *whereabouts.LoneReservation) []*whereabouts.Pool {
	return v.PoolsAt(l.Namespace, l.Network.Name, l.Addr)
}

func loneConcern(v *whereabouts.Verdicts, l *whereabouts.LoneReservation) repair.Concern {
	c := repair.Concern{Target: state.Subject{Kind: state.KindWhereaboutsReservation, Name: l.Key().String()}, Pools: whereabouts.FullNames(lonePools(v, l))}
	for _, w := range []*blocks.Workload{l.User, l.Pod} {
		if w != nil {
			c.Target.Node, c.Nodes = w.Node, append(c.Nodes, w.Node)
		}
	}
	return c
}

// proposeLone evaluates one reservation. [restoreWhereabouts] handles reservations that a pod uses.
func proposeLone(q *asker, l *whereabouts.LoneReservation) {
	c := loneConcern(q.Verdicts, l)
	if b := q.DeleteBar(l); b.Code != "" {
		if l.User == nil || q.Only != "" {
			q.Refuse(c, retainCodes[b.Code], "%s", b.Reason)
		}
		return
	}
	// All machines are asked: a slice that one node has now may have belonged to another node
	// before.
	e := q.evidenceFor(l.Addr, l.WhereaboutsOwner, q.AllMachines(), l.Written.Later(l.Created))
	if e.Code != "" {
		q.Refuse(c, retainCodes[e.Code], "no user of %s was found, but %s", l.Addr, e.Reason)
		return
	}
	q.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("reservation %s keeps %s, which no pool records, and pod %s does not exist", l.Key(), l.Addr, l.WhereaboutsOwner.Pod),
		Evidence: state.Evidences("address", l.Addr, "network", l.Network.Name, "pod", l.WhereaboutsOwner.Pod, "interface", l.Interface, "container", l.ContainerID,
			"created", l.Created, everyNode, phrase.Plural(len(q.AllMachines()), "node"), "not in use", e.Evidence, "consent", repair.OnlyIf(e.Consent, withoutHostEvidence)),
		Guards: repair.Guards(repair.GuardUID, l.UID(), repair.GuardVersion, l.ResourceVersion(), repair.GuardCreated, l.Created.String(),
			repair.GuardPod, l.WhereaboutsOwner.Pod.String(), repair.GuardMachineOff, e.Off),
	}, l.Meta)
}

// deleteLone deletes the reservation that an unfinished step left, if records and pods still allow
// it. The interrupted run already had the evidence that nothing on a node uses the address.
func deleteLone(b *repair.Begun, name string) repair.Move {
	v := whereabouts.Of(b.State)
	l := loneNamed(v, name)
	if l == nil {
		return repair.Move{}
	}
	if no := v.DeleteBar(l); no.Code != "" {
		return repair.Cannot(repair.SkipHalfDone, "its reservation %s is left: %s", name, no.Reason)
	}
	ref, at := repair.PinOf(blocks.WhereaboutsReservations, l.Namespace, l.Meta), places(lonePools(v, l), l.Addr)
	return repair.ToWrite(func(ctx context.Context) error { return b.Writer.DeleteWhereaboutsReservation(ctx, ref, at) }, "deleting the address's reservation")
}
