package moves

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Claim gives the emptied and released block to the node in need, before the reservation
// is deleted, so that no other node can take it meanwhile.
var Claim = &repair.StepKind{
	Kind:       repair.ClaimBlock,
	Requires:   state.ReleaseReads,
	RestsOnAll: func(*repair.Step) bool { return true },
	Exact:      []string{repair.GuardConsolidation, repair.GuardForNode},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get create"), repair.May(blocks.Affinities, "get list create patch delete")},
	Propose: func(p *repair.Proposals) {
		c := consolidation(p)
		if c == nil || len(c.Barred) > 0 || withheld(p, c).Code != "" || c.Over() && (!c.Claimed() || !unconfirmed(p.State, c)) {
			return
		}
		target := state.Subject{Kind: state.KindAffinity, CIDR: c.CIDR.String(), Node: c.For, Name: blocks.AffinityName(c.For, c.CIDR)}
		if p.Wants(target) {
			p.Add(AboutAll(c, target), repair.Step{
				Because: fmt.Sprintf("%s is freed for it, and claimed immediately so that no other node claims it", c.CIDR),
				Guards:  Joins(c),
			})
		}
	},
	AddRefs: consolidationRefs,
	Do: func(ctx context.Context, w repair.Writer, _ *state.State, s *repair.Step) error {
		return w.ClaimBlock(ctx, repair.PrefixOf(s.Target), s.Target.Node)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		b := repair.BlockAt(st, s.Target.CIDR)
		if b == nil || b.Owner.Node() != s.Target.Node {
			return fmt.Errorf("%s is not %s's", s.Target.CIDR, s.Target.Node)
		}
		if a := repair.OwnAffinity(st, b); a == nil || a.Effective() != blocks.Confirmed {
			return repair.LeftBehind(blocks.Blocks, b.Name, "is left without a confirmed affinity of %s", s.Target.Node)
		}
		return nil
	},
	Complete: func(b *repair.Begun) repair.Move {
		x := repair.BlockAt(b.State, b.Step.Target.CIDR)
		if x != nil && x.Owner.Node() != b.Step.Target.Node || x == nil && repair.AffinityOf(b.State, b.Step.Target.CIDR, b.Step.Target.Node) == nil {
			return repair.Move{}
		}
		return repair.ToWrite(func(ctx context.Context) error {
			return b.Writer.ClaimBlock(ctx, repair.PrefixOf(b.Step.Target), b.Step.Target.Node)
		}, "claiming the block")
	},
	Undo: func(*repair.Begun) repair.Move {
		return repair.Nothing(repair.NotNeeded, "the node keeps the block: --empty-blocks releases it when it is empty and another is there")
	},
	Pretend: func(x *repair.Pretence, s *repair.Step) { x.Claim(repair.PrefixOf(s.Target), s.Target.Node) },
}

// unconfirmed reports whether a block was claimed but its affinity is not confirmed yet.
func unconfirmed(st *state.State, c *remedies.Consolidation) bool {
	a := repair.OwnAffinity(st, c.Block)
	return a == nil || a.Effective() != blocks.Confirmed
}
