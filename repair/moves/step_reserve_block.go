package moves

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Reserve keeps new pods off the block to be emptied, with an IPReservation. It is the
// first step of a consolidation, and its IPReservation marks the consolidation as in
// progress.
var Reserve = &repair.StepKind{
	Kind:       repair.ReserveBlock,
	Requires:   state.ReleaseReads,
	RestsOnAll: func(*repair.Step) bool { return true },
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardOwner, repair.GuardConsolidation, repair.GuardForNode},
	Rights:     []repair.Right{repair.May(blocks.Reservations, "get create delete"), repair.LeaseRight},
	UndoRights: []repair.Right{repair.May(blocks.Reservations, "get delete"), repair.LeaseRight},
	Propose: func(p *repair.Proposals) {
		c := Consolidating(p)
		if c == nil {
			refuseConsolidation(p)
			return
		}
		if c.Reservation != nil || c.Block == nil || !p.Wants(state.BlockSubject(c.Block)) {
			return
		}
		var pods blocks.Names
		for _, m := range c.Moves {
			pods = append(pods, m.Pod.FullName())
		}
		p.Add(AboutAll(c, state.BlockSubject(c.Block)), repair.Step{
			Because: fmt.Sprintf("%s has no block and can claim none; %s keeps other blocks when this one is emptied (pods to move: %d)",
				c.For, c.Holder, len(c.Moves)),
			Evidence: state.Evidences("pool", state.PoolName(c.Pool), "holder", c.Holder, "node in need", c.For, "pods that move", phrase.OrNone(state.Value(pods)),
				"nodes cordoned meanwhile", phrase.OrNone(state.Value(c.Cordon))),
			Guards: Joins(c, repair.GuardName, c.Block.Name, repair.GuardUID, c.Block.UID(), repair.GuardOwner, repair.OwnerGuard(c.Block.Owner)),
		}, c.Block.Meta)
	},
	Idle:    nothingToConsolidate,
	AddRefs: consolidationRefs,
	Due:     func(a *repair.Turn, s *repair.Step) (time.Time, repair.Reason) { return time.Time{}, unplanned(a, s) },
	Do: func(ctx context.Context, w repair.Writer, _ *state.State, s *repair.Step) error {
		return w.Reserve(ctx, repair.PrefixOf(s.Target), s.Guard(repair.GuardConsolidation))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if r := reservationOf(st, s.Target.CIDR); (r == nil || r.Ours != s.Group()) && !passed(st, s) {
			return fmt.Errorf("%s is not reserved for %s", s.Target.CIDR, s.Guard(repair.GuardForNode))
		}
		return nil
	},
	Undo: unreserve,
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		x.Reservations = append(x.Reservations, blocks.Reservation{
			Meta: blocks.Meta{Name: remedies.ReservationName(repair.PrefixOf(s.Target)), Created: x.Cluster.Taken()},
			Ours: s.Guard(repair.GuardConsolidation), CIDRs: []blocks.Prefix{repair.PrefixOf(s.Target)},
		})
	},
}

// unreserve deletes a reservation of calico-audit.
func unreserve(b *repair.Begun) repair.Move {
	cidr := b.Step.Target.CIDR
	r := reservationOf(b.State, cidr)
	if r == nil || r.Ours != b.Step.Group() {
		return repair.Nothing(repair.NotNeeded, "the reservation is gone, or belongs to another consolidation")
	}
	ref := repair.Pin(blocks.Reservations, r.Meta)
	return repair.ToWrite(func(ctx context.Context) error { return b.Writer.Unreserve(ctx, ref) }, "delete the IPReservation of %s", cidr)
}

// consolidationRefs adds the objects that show the progress of a consolidation, in
// addition to the whole cluster.
func consolidationRefs(r *repair.Refs, s *repair.Step) {
	if p := repair.PrefixOf(state.Subject{CIDR: emptied(s)}); p.IsValid() {
		r.One(blocks.Reservations, remedies.ReservationName(p))
		r.Claim(p, s.Guard(repair.GuardForNode))
	}
}

// nothingToConsolidate explains why no block is emptied for any node.
func nothingToConsolidate(st *state.State) string {
	if names := remedies.Of(st).LackingBlocks(); len(names) > 0 {
		return fmt.Sprintf("%s can claim a block once an empty one is released: --empty-blocks comes first", names)
	}
	return "each node that takes pods has a block, or can claim one"
}
