package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// reserveBlock keeps new pods off a block that is emptied, by an IPReservation. It is the
// first step of a consolidation, and what tells that one is under way.
var reserveBlock = &StepKind{
	kind: ReserveBlock, flag: "--consolidate",
	asked: func(r Request) bool { return r.Consolidate },
	needs: state.ReleaseReads,
	whole: func(*Step) bool { return true },
	exact: []string{GuardName, GuardUID, GuardOwner, GuardConsolidation, GuardInNeed},
	propose: func(p *proposals) {
		c := p.consolidating()
		if c == nil {
			p.refuseConsolidation()
			return
		}
		if c.Reservation != nil || c.Block == nil || !p.wants(state.BlockSubject(c.Block)) {
			return
		}
		var pods []string
		for _, m := range c.Moves {
			pods = append(pods, m.Pod.FullName())
		}
		p.add(p.aboutAll(c, state.BlockSubject(c.Block)), Step{
			Because: fmt.Sprintf("%s has no block and can claim none; %s keeps others when this one is emptied, which takes moving %s: the fewest of all blocks that can be",
				c.For, c.Holder, phrase.Plural(len(c.Moves), "pod")),
			Evidence: state.Evidences("pool", poolName(c.Pool), "holder", c.Holder, "node in need", c.For, "pods that move", phrase.OrNone(phrase.List(pods)),
				"nodes cordoned meanwhile", phrase.OrNone(phrase.List(c.Cordon))),
			Guards: joins(c, GuardName, c.Block.Name, GuardUID, c.Block.UID, GuardOwner, ownerGuard(c.Block.Owner)),
		}, c.Block.Meta)
	},
	refs:  consolidationRefs,
	ready: func(a *Turn, s *Step) (time.Time, reason) { return time.Time{}, a.unplanned(s) },
	do: func(ctx context.Context, w Writer, _ *state.State, s *Step) error {
		return w.Reserve(ctx, prefixOf(s.Target), s.Guard(GuardConsolidation))
	},
	verify: func(st *state.State, s *Step) error {
		if r := reservationOf(st, s.Target.CIDR); (r == nil || r.Ours != s.Group()) && !passed(st, s) {
			return fmt.Errorf("%s is not reserved for %s", s.Target.CIDR, s.Guard(GuardInNeed))
		}
		return nil
	},
	undo: (*Begun).unreserve,
	pretend: func(x *pretence, s *Step) {
		x.Reservations = append(x.Reservations, blocks.Reservation{
			Meta: blocks.Meta{Name: remedies.ReservationName(prefixOf(s.Target)), Created: x.Cluster.Taken()},
			Ours: s.Guard(GuardConsolidation), CIDRs: []blocks.Prefix{prefixOf(s.Target)},
		})
	},
}

// unreserve takes a reservation of ours back.
func (b *Begun) unreserve() Move {
	cidr := b.Step.Target.CIDR
	r := reservationOf(b.State, cidr)
	if r == nil || r.Ours != b.Step.Group() {
		return nothing(NotNeeded, "the reservation is gone, or another consolidation's")
	}
	ref := pin(blocks.Reservations, r.Meta)
	return toWrite(func(ctx context.Context) error { return b.Writer.Unreserve(ctx, ref) }, "take the reservation of %s back", cidr)
}

// consolidationRefs are what says how far a consolidation is, beside the whole cluster.
func consolidationRefs(r *refs, s *Step) {
	if p := prefixOf(state.Subject{CIDR: s.emptied()}); p.IsValid() {
		r.one(blocks.Reservations, remedies.ReservationName(p))
		r.claim(p, s.Guard(GuardInNeed))
	}
}
