package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// unreserveBlock takes the reservation of a consolidation back: when it is done, and
// whatever ends it before.
var unreserveBlock = &StepKind{
	kind: UnreserveBlock, flag: "--consolidate", restores: true,
	asked: func(r Request) bool { return r.Consolidate },
	needs: []blocks.Resource{blocks.Reservations},
	plain: true,
	exact: []string{GuardConsolidation, GuardInNeed},
	propose: func(p *proposals) {
		for _, c := range p.takenBack() {
			target := state.Subject{Kind: state.KindBlock, CIDR: c.CIDR.String(), Name: blocks.BlockName(c.CIDR), Node: c.Holder}
			if p.wants(target) {
				p.add(p.aboutAll(c, target), Step{
					Because: fmt.Sprintf("the reservation of %s was made to empty it for %s, and keeps its addresses from all pods until it is gone", c.CIDR, c.For),
					Guards:  joins(c),
				})
			}
		}
	},
	refs: func(r *refs, s *Step) {
		r.one(blocks.Reservations, remedies.ReservationName(prefixOf(s.Target)))
		r.block(prefixOf(s.Target))
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		r := reservationOf(st, s.Target.CIDR)
		if r == nil {
			return errGone(s)
		}
		return w.Unreserve(ctx, pin(blocks.Reservations, r.Meta))
	},
	verify: func(st *state.State, s *Step) error {
		if r := reservationOf(st, s.Target.CIDR); r != nil && r.Ours == s.Group() {
			return left(blocks.Reservations, r.Name, "is left, and keeps the addresses of %s from all pods", s.Target.CIDR)
		}
		return nil
	},
	undo: (*Begun).unreserve, // it was for a while only, and the run may have died before
	pretend: func(x *pretence, s *Step) {
		x.dropReservation(remedies.ReservationName(prefixOf(s.Target)))
	},
}

// takenBack are the consolidations whose reservation and cordons are taken back: those
// under way, and the one that the plan begins.
func (p *proposals) takenBack() []*remedies.Consolidation {
	begun := remedies.Of(p.st).Begun()
	if c := p.consolidating(); c != nil && c.Reservation == nil {
		begun = append(begun, c)
	}
	return begun
}
