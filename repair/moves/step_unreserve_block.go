package moves

import (
	"context"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Unreserve deletes the reservation of a consolidation when it is done or ends early.
var Unreserve = &repair.StepKind{
	Kind: repair.UnreserveBlock, Restores: true,
	Requires:   []blocks.Resource{blocks.Reservations},
	Plain:      true,
	Exact:      []string{repair.GuardConsolidation, repair.GuardForNode},
	Rights:     []repair.Right{repair.May(blocks.Reservations, "get delete"), repair.LeaseRight},
	UndoRights: []repair.Right{repair.May(blocks.Reservations, "get delete"), repair.LeaseRight},
	Propose: func(p *repair.Proposals) {
		for _, c := range takenBack(p) {
			target := state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String(), Name: blocks.BlockName(c.CIDR), Node: c.Holder}
			if p.Wants(target) {
				p.Add(AboutAll(c, target), repair.Step{
					Because: fmt.Sprintf("the reservation of %s was made to empty it for %s, and keeps its addresses from all pods until it is deleted", c.CIDR, c.For),
					Guards:  Joins(c),
				})
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.One(blocks.Reservations, remedies.ReservationName(repair.PrefixOf(s.Target)))
		r.Block(repair.PrefixOf(s.Target))
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		r := reservationOf(st, s.Target.CIDR)
		if r == nil {
			return repair.DeletedError(s)
		}
		return w.Unreserve(ctx, repair.Pin(blocks.Reservations, r.Meta))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if r := reservationOf(st, s.Target.CIDR); r != nil && r.Ours == s.Group() {
			return repair.LeftBehind(blocks.Reservations, r.Name, "is left, and keeps the addresses of %s from all pods", s.Target.CIDR)
		}
		return nil
	},
	Undo: unreserve, // the reservation is temporary, and the run may have died before deleting it
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		name := remedies.ReservationName(repair.PrefixOf(s.Target))
		x.Reservations = slices.DeleteFunc(x.Reservations, func(r blocks.Reservation) bool { return r.Name == name })
	},
}

// takenBack returns the consolidations whose reservation and cordons must be removed: those in
// progress, and the one that the plan starts.
func takenBack(p *repair.Proposals) []*remedies.Consolidation {
	begun := remedies.Of(p.State).Begun()
	if c := Consolidating(p); c != nil && c.Reservation == nil {
		begun = append(begun, c)
	}
	return begun
}
