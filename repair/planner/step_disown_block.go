package planner

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// disownBlock removes the owner of a block whose node no longer exists, if pods of other nodes use
// all its addresses. A block in use cannot be released, but without an owner it is deleted with its
// last address. Because the block is in use, its version is not pinned.
var disownBlock = &repair.StepKind{
	Kind:     repair.DisownBlock,
	Requires: state.ReleaseReads,
	Exact: []string{
		repair.GuardName, repair.GuardUID, repair.GuardCreated, repair.GuardOwner, repair.GuardAffinity, repair.GuardAffinityUID, repair.GuardAffinityVersion, repair.GuardAffinityState,
	},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get patch"), repair.May(blocks.Affinities, "get create patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		for _, b := range p.State.IPBlocks {
			vanished := p.State.Vanished(b.Owner.Node())
			if b.Used == 0 || !vanished && p.Only == "" || !p.Wants(state.BlockSubject(b)) {
				continue
			}
			proposeDisown(p, b)
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.Claim(repair.PrefixOf(s.Target), repair.HostOf(s.Guard(repair.GuardOwner)))
		b := repair.BlockAt(r.State, s.Target.CIDR)
		if b == nil {
			return
		}
		for i, o := range b.Ordinals {
			if o != blocks.Free {
				ref := state.AllocationRef{Block: b, Ordinal: i}
				r.Owner(ref)
				r.User(ref)
			}
		}
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		b := repair.BlockAt(st, s.Target.CIDR)
		if b == nil {
			return repair.DeletedError(s)
		}
		return w.DisownBlock(ctx, repair.Pin(blocks.Blocks, b.Meta), pinOwnAffinity(st, b))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		host := repair.HostOf(s.Guard(repair.GuardOwner))
		if b := repair.BlockAt(st, s.Target.CIDR); b != nil && b.Owner.Node() == host {
			if err := repair.Replaced(s, "block", b.Meta); err != nil {
				return fmt.Errorf("%w, and belongs to %s", err, host)
			}
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, host)
	},
	Complete: func(b *repair.Begun) repair.Move {
		if x := repair.BlockAt(b.State, b.Step.Target.CIDR); x != nil && x.Used > 0 && repair.OwnerGuard(x.Owner) == b.Step.Guard(repair.GuardOwner) && !b.Undo {
			return releaseLeft(b)
		}
		return b.EndAffinity()
	},
	Undo: func(b *repair.Begun) repair.Move {
		return keepAffinity(b, "a block is not returned to a node that no longer exists: no node could use or release it")
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		if b := x.BlockByName[step.Guard(repair.GuardName)]; b != nil {
			b.Owner, b.Claimed = blocks.Owner{}, b.Created
		}
		x.NoAffinities[step.Guard(repair.GuardAffinity)] = true
	},
}

func proposeDisown(p *repair.Proposals, b *state.Block) {
	c, host := blockConcern(b), b.Owner.Node()
	if v := p.State.Disownable(b); !v.OK {
		bars(p, c, v.Bar)
		return
	}
	var users []string
	for _, br := range p.State.NodeState(host).Lent {
		if br.Block == b {
			users, c.Nodes = append(users, fmt.Sprintf("%s on %s", br.Addr, br.User)), append(c.Nodes, br.User)
		}
	}
	a, pinned := repair.OwnAffinity(p.State, b), []blocks.Meta{b.Meta}
	pairs := append([]string{
		repair.GuardName, b.Name, repair.GuardUID, b.UID(), repair.GuardCreated, b.Created.String(), repair.GuardOwner, repair.OwnerGuard(b.Owner),
	}, affinityGuards(a, true)...)
	if a != nil {
		pinned = append(pinned, a.Meta)
	}
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because: fmt.Sprintf("block %s belongs to node %q, which no longer exists, and pods of other nodes use all that it holds (%s): without an owner it is deleted with the last of them",
			b.CIDR, host, phrase.Plural(b.Used, "address")),
		Evidence: state.Evidences("owner", host, "in use by", users, "pool", state.PoolName(b.Pool), "created", b.Created),
		Guards:   repair.Guards(pairs...),
	}, pinned...)
}
