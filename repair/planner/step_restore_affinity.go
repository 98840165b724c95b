package planner

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// restoreAffinity restores the affinity object of a block's owner. Without it, no node routes the
// block and Calico cannot release it. Because the block is in use, its version is not pinned. Its
// identity and its owner must not change, and the affinity must be missing in both observations.
var restoreAffinity = &repair.StepKind{
	Kind:       repair.RestoreAffinity,
	Requires:   state.RestoreAffinityReads,
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardCreated, repair.GuardOwner, repair.GuardAffinity},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get list create patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		for _, b := range p.State.IPBlocks {
			host := b.Owner.Node()
			if host == "" || !p.Wants(state.BlockSubject(b)) {
				continue
			}
			if a := repair.OwnAffinity(p.State, b); a == nil || a.SoftDeleted && p.State.OldEnough(a.Meta) {
				proposeRestore(p, b, host)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.Claim(repair.PrefixOf(s.Target), repair.HostOf(s.Guard(repair.GuardOwner)))
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		b := repair.BlockAt(st, s.Target.CIDR)
		if b == nil {
			return repair.DeletedError(s)
		}
		return w.RestoreAffinity(ctx, repair.Pin(blocks.Blocks, b.Meta))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		a := repair.AffinityOf(st, s.Target.CIDR, repair.HostOf(s.Guard(repair.GuardOwner)))
		switch {
		case a == nil:
			return fmt.Errorf("%s still has no affinity to %s", s.Guard(repair.GuardOwner), s.Target.CIDR)
		case a.SoftDeleted || a.Effective() != blocks.Confirmed:
			return fmt.Errorf("affinity %s is there and not confirmed", a.Name)
		}
		switch b := repair.BlockAt(st, s.Target.CIDR); {
		case b == nil:
			return repair.LeftBehind(blocks.Affinities, a.Name, "is left confirmed without its block")
		case b.Owner != a.Owner:
			return repair.LeftBehind(blocks.Affinities, a.Name, "is left confirmed to a block of %s", b.Owner)
		}
		return nil
	},
	// If the claim was left pending, it is confirmed if its host owns the block. Otherwise an undo
	// deletes it.
	Complete: func(b *repair.Begun) repair.Move {
		a, x := b.Affinity(), repair.BlockAt(b.State, b.Step.Target.CIDR)
		if a == nil || a.State != blocks.Pending || a.CIDR != repair.PrefixOf(b.Step.Target) || b.Undo && (a.SoftDeleted || !b.Log.Ours(a.Meta)) {
			return repair.Move{}
		}
		its := x != nil && x.Owner == a.Owner
		switch {
		case !b.Undo && its:
			return b.SetAffinity(a, blocks.Confirmed, "confirming the affinity")
		case !b.Undo || its && (b.State.Vanished(a.Owner.Node()) || b.State.UnreadableNode(a.Owner.Node())):
			return repair.Move{}
		case its:
			return b.SetAffinity(a, blocks.Confirmed, "confirm the affinity %s, without which the block would not be routed", a.Name)
		}
		m := b.DeleteAffinity(a, fmt.Sprintf("delete the affinity %s, which was left pending and whose block belongs to another node", a.Name))
		m.Code = repair.CodeFinished
		return m
	},
	Undo: func(b *repair.Begun) repair.Move {
		x := repair.BlockAt(b.State, b.Step.Target.CIDR)
		if x == nil || repair.AffinityOf(b.State, b.Step.Target.CIDR, x.Owner.Node()) == nil {
			return repair.Nothing(repair.Already, "the affinity is gone")
		}
		return repair.Cannot(repair.SkipHarm, "the block belongs to %s: without the affinity it would not be routed or found again", x.Owner)
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		host, cidr := repair.HostOf(step.Guard(repair.GuardOwner)), repair.PrefixOf(step.Target)
		x.Affinities = append(x.Affinities, blocks.Affinity{
			Meta: blocks.Meta{Name: blocks.AffinityName(host, cidr), Created: x.Cluster.Taken(), Written: x.Cluster.Taken()},
			CIDR: cidr, Owner: blocks.Owner{Kind: blocks.HostOwner, Name: host}, State: blocks.Confirmed,
		})
	},
}

func proposeRestore(p *repair.Proposals, b *state.Block, host string) {
	c, st := blockConcern(b), p.State
	if bars(p, c, st.RestoreAffinityBar(b)) {
		return
	}
	if p.Request.EmptyBlocks && b.Used == 0 && b.Releasability.OK {
		p.Refuse(c, repair.RefusedConflict, "it is empty, and this plan releases it instead")
		return
	}
	if whole := st.WholeBar(state.ReleaseReads, false); p.Request.EmptyBlocks && b.Used == 0 && whole.Code != "" {
		p.Refuse(c, repair.RefusedNotRead, "it is empty, and whether to release it instead is not known: %s", whole.Reason)
		return
	}
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("block %s belongs to %s, which has no affinity to it: no node routes its %s in use as a block", b.CIDR, host, phrase.Plural(b.Used, "address")),
		Evidence: state.Evidences("owner", host, "in use", b.Used, "affinities to the CIDR", "none", "pool", state.PoolName(b.Pool),
			"created", b.Created, "host", hostText(st, host)),
		Guards: repair.Guards(repair.GuardName, b.Name, repair.GuardUID, b.UID(), repair.GuardCreated, b.Created.String(), repair.GuardOwner, repair.OwnerGuard(b.Owner), repair.GuardAffinity, repair.Absent),
	}, b.Meta)
}
