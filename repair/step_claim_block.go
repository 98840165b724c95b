package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// claimBlock gives the block that was emptied and released to the node in need, before
// the reservation goes: no one else can take it meanwhile.
var claimBlock = &StepKind{
	kind: ClaimBlock, flag: "--consolidate",
	asked: func(r Request) bool { return r.Consolidate },
	needs: state.ReleaseReads,
	whole: func(*Step) bool { return true },
	exact: []string{GuardConsolidation, GuardInNeed},
	propose: func(p *proposals) {
		c := p.consolidation()
		if c == nil || len(c.Barred) > 0 || p.withheld(c).code != "" || c.Over() && (!c.Claimed() || !unconfirmed(p.st, c)) {
			return
		}
		target := state.Subject{Kind: state.KindAffinity, CIDR: c.CIDR.String(), Node: c.For, Name: blocks.AffinityName(c.For, c.CIDR)}
		if p.wants(target) {
			p.add(p.aboutAll(c, target), Step{
				Because: fmt.Sprintf("%s is freed for it, and claimed at once so that no other node claims it", c.CIDR),
				Guards:  joins(c),
			})
		}
	},
	refs: consolidationRefs,
	do: func(ctx context.Context, w Writer, _ *state.State, s *Step) error {
		return w.ClaimBlock(ctx, prefixOf(s.Target), s.Target.Node)
	},
	verify: func(st *state.State, s *Step) error {
		b := blockAt(st, s.Target.CIDR)
		if b == nil || b.Owner.Node() != s.Target.Node {
			return fmt.Errorf("%s is not %s's", s.Target.CIDR, s.Target.Node)
		}
		if a := ownAffinity(st, b); a == nil || a.Effective() != blocks.Confirmed {
			return left(blocks.Blocks, b.Name, "is left without a confirmed affinity of %s", s.Target.Node)
		}
		return nil
	},
	complete: func(b *Begun) Move {
		x := blockAt(b.State, b.Step.Target.CIDR)
		if x != nil && x.Owner.Node() != b.Step.Target.Node || x == nil && affinityOf(b.State, b.Step.Target.CIDR, b.Step.Target.Node) == nil {
			return Move{}
		}
		return toWrite(func(ctx context.Context) error {
			return b.Writer.ClaimBlock(ctx, prefixOf(b.Step.Target), b.Step.Target.Node)
		}, "claiming the block")
	},
	undo: func(*Begun) Move {
		return nothing(NotNeeded, "the node keeps the block: --empty-blocks releases it when it is empty and another is there")
	},
	pretend: func(x *pretence, s *Step) { x.claim(prefixOf(s.Target), s.Target.Node) },
}

// unconfirmed reports whether a block was claimed, and its affinity not confirmed yet.
func unconfirmed(st *state.State, c *remedies.Consolidation) bool {
	a := ownAffinity(st, c.Block)
	return a == nil || a.Effective() != blocks.Confirmed
}
