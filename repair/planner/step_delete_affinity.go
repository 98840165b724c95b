package planner

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// deleteAffinity deletes an affinity that no block confirms: its block does not exist, or names
// another owner or none. The block's own field decides, not the affinity's state and age. An
// affinity to its own host's block is never deleted without the block, because a block in use would
// have none.
var deleteAffinity = &repair.StepKind{
	Kind:       repair.DeleteAffinity,
	Requires:   state.DeleteAffinityReads,
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardVersion, repair.GuardCreated, repair.GuardAffinityState, repair.GuardBlockUID, repair.GuardOwner},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get create patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		for i := range p.State.Affinities {
			a := &p.State.Affinities[i]
			if a.SoftDeleted || !p.Wants(state.AffinitySubject(a)) || !p.Request.OrphanAffinities && !p.State.Vanished(a.Owner.Node()) {
				continue
			}
			switch affinity.Classify(a, state.BareOrNil(p.State.BlockOf(a.CIDR))) {
			case affinity.NoBlock, affinity.NotOwner:
				proposeDelete(p, a)
			case affinity.Unconfirmed:
				refuseUnconfirmed(p, a)
			case affinity.Confirmed:
				if p.Only != "" {
					p.Refuse(affinityConcern(p, a), repair.RefusedInUse, "its block names the same host: it is the owner's own")
				}
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.One(blocks.Affinities, s.Guard(repair.GuardName))
		r.Claim(repair.PrefixOf(s.Target), s.Target.Node)
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		a := repair.AffinityNamed(st, s.Guard(repair.GuardName))
		if a == nil {
			return repair.DeletedError(s)
		}
		return w.DeleteAffinity(ctx, repair.Pin(blocks.Affinities, a.Meta))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		for _, a := range []*blocks.Affinity{repair.AffinityNamed(st, s.Guard(repair.GuardName)), repair.AffinityOf(st, s.Target.CIDR, s.Target.Node)} {
			if a == nil {
				continue
			}
			if err := repair.Replaced(s, "affinity", a.Meta); err != nil {
				return err
			}
		}
		return ownersAffinity(st, s.Target.CIDR, s.Target.Node)
	},
	Complete: (*repair.Begun).EndAffinity,
	Undo: func(b *repair.Begun) repair.Move {
		if a := b.SameAffinity(); a != nil {
			return b.PutBack(a)
		}
		return deletedAffinity(b)
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) { x.NoAffinities[step.Guard(repair.GuardName)] = true },
}

// deletedAffinity explains why a deleted affinity is not created again in the present cluster: it
// exists again, its node now owns the block, or it would still do harm.
func deletedAffinity(b *repair.Begun) repair.Move {
	host, cidr := b.Step.Target.Node, b.Step.Target.CIDR
	x := repair.BlockAt(b.State, cidr)
	switch a := repair.AffinityOf(b.State, cidr, host); {
	case a != nil:
		return repair.Nothing(repair.Already, fmt.Sprintf("%s has an affinity to %s again, created %s", host, cidr, a.Created))
	case x == nil:
		return repair.Cannot(repair.SkipHarm, "an affinity without its block is not restored: no other node could claim %s", cidr)
	case x.Owner.Node() == host:
		return repair.Cannot(repair.SkipHarm, "block %s now belongs to %s, and the affinity is not restored: --missing-affinities does that once the claim is older than the grace period", cidr, host)
	}
	return repair.Cannot(repair.SkipHarm, "block %s belongs to %s, and the affinity of %s is not restored: its node would black-hole the block", cidr, x.Owner, host)
}

func affinityConcern(p *repair.Proposals, a *blocks.Affinity) repair.Concern {
	c := repair.Concern{Target: state.AffinitySubject(a), Pools: state.PoolsOf(p.State.PoolOf(a.CIDR)), Nodes: []string{a.Owner.Node()}}
	if b := p.State.BlockOf(a.CIDR); b != nil {
		c.Nodes = append(c.Nodes, b.Owner.Node())
	}
	return c
}

// proposeDelete evaluates an affinity whose block does not exist or has another owner.
func proposeDelete(p *repair.Proposals, a *blocks.Affinity) {
	c, st, b := affinityConcern(p, a), p.State, p.State.BlockOf(a.CIDR)
	if bars(p, c, st.DeleteAffinityBar(a, b)) {
		return
	}
	because := fmt.Sprintf("affinity of %s to %s exists, its IPAMBlock does not", a.Owner, a.CIDR)
	block, uid, owner := "none exists", repair.Absent, ""
	if b != nil {
		because = fmt.Sprintf("%s has an affinity to block %s, which belongs to %s", a.Owner, a.CIDR, b.Owner)
		block, uid, owner = fmt.Sprintf("%s, owner %s, %s in use", b.Name, b.Owner, phrase.Plural(b.Used, "address")), b.UID(), repair.OwnerGuard(b.Owner)
		if b.UID() == "" {
			p.Refuse(c, repair.RefusedUnpinned, "its block was read without UID, so a later write could not check that it is still the same object")
			return
		}
	}
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because:         because,
		Evidence: state.Evidences("state", string(a.Effective()), "block", block, "host", hostText(st, a.Owner.Node()),
			"created", a.Created, "last written", a.Written),
		Guards: repair.Guards(repair.GuardName, a.Name, repair.GuardUID, a.UID(), repair.GuardVersion, a.ResourceVersion(), repair.GuardCreated, a.Created.String(),
			repair.GuardAffinityState, string(a.Effective()), repair.GuardBlockUID, uid, repair.GuardOwner, owner),
	}, a.Meta)
}

// refuseUnconfirmed explains what happens to an affinity to its own host's block that stays pending
// or pendingDeletion.
func refuseUnconfirmed(p *repair.Proposals, a *blocks.Affinity) {
	b := p.State.BlockOf(a.CIDR)
	if !p.State.OldEnough(a.Meta) && !state.HalfDone(a) {
		return // a claim or a release in flight: nothing is wrong
	}
	c, host := affinityConcern(p, a), a.Owner.Node()
	switch {
	case a.Owner.Kind != blocks.HostOwner:
		p.Refuse(c, repair.RefusedSpecial, "it does not belong to a node")
	case b.Used == 0:
		if p.Only == "" {
			return // the block may be released with it: release-block decides
		}
		p.Refuse(c, repair.RefusedHeals, "its block is empty: release-block releases both, if the node keeps another block")
	case p.State.Vanished(host) && p.Request.DeadNodes && p.Only == "": // disown-block decides whether both may be deleted
	case p.State.Vanished(host):
		p.Refuse(c, repair.RefusedInUse, "its block still holds %s and names %s, which no longer exists: the affinity can only be deleted with the block", phrase.Plural(b.Used, "address"), host)
	default:
		p.Refuse(c, repair.RefusedHeals, "the affinity is %s, and its block belongs to the same node and holds %s: the next pod that starts on %s confirms the affinity", a.Effective(), phrase.Plural(b.Used, "address"), host)
	}
}

// hostText describes a host.
func hostText(st *state.State, host string) string {
	switch {
	case host == "":
		return ""
	case st.UnreadableNode(host):
		return host + ", whose node could not be read"
	case st.Vanished(host):
		return host + ", which no longer exists"
	}
	return "node " + host
}
