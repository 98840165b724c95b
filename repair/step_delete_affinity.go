package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// deleteAffinity deletes an affinity that no block bears out: its block does not
// exist, or names another owner or none. Whatever the affinity's state and age, the
// block's own field decides who is right. An affinity to its own host's block is
// never deleted alone: that would leave the block in use without one.
var deleteAffinity = &StepKind{
	kind:  DeleteAffinity,
	flag:  "--orphan-affinities",
	asked: func(r Request) bool { return r.OrphanAffinities || r.DeadNodes },
	needs: []blocks.Resource{blocks.Affinities, blocks.Blocks, blocks.Nodes, blocks.Pods, blocks.Pools},
	exact: []string{GuardName, GuardUID, GuardVersion, GuardCreated, GuardAffinityState, GuardBlockUID, GuardOwner},
	propose: func(p *proposals) {
		for i := range p.st.Affinities {
			a := &p.st.Affinities[i]
			if a.SoftDeleted || !p.wants(state.AffinitySubject(a)) || !p.req.OrphanAffinities && !p.st.Vanished(a.Owner.Node()) {
				continue
			}
			switch affinity.Classify(a, bare(p.st.BlockOf(a.CIDR))) {
			case affinity.NoBlock, affinity.NotOwner:
				p.proposeDelete(a)
			case affinity.Unconfirmed:
				p.refuseUnconfirmed(a)
			case affinity.Confirmed:
				if p.only != "" {
					p.refuse(p.affinityConcern(a), RefusedInUse, "its block names the same host: it is the owner's own")
				}
			}
		}
	},
	refs: func(r *refs, s *Step) {
		r.one(blocks.Affinities, s.Guard(GuardName))
		r.claim(prefixOf(s.Target), s.Target.Node)
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		a := affinityNamed(st, s.Guard(GuardName))
		if a == nil {
			return errGone(s)
		}
		return w.DeleteAffinity(ctx, pin(blocks.Affinities, a.Meta))
	},
	verify: func(st *state.State, s *Step) error {
		for _, a := range []*blocks.Affinity{affinityNamed(st, s.Guard(GuardName)), affinityOf(st, s.Target.CIDR, s.Target.Node)} {
			if a == nil {
				continue
			}
			if err := replaced(s, "affinity", a.Meta); err != nil {
				return err
			}
		}
		return ownersAffinity(st, s.Target.CIDR, s.Target.Node)
	},
	complete: (*Begun).endAffinity,
	undo: func(b *Begun) Move {
		if a := b.sameAffinity(); a != nil {
			return b.putBack(a)
		}
		return b.deletedAffinity()
	},
	pretend: func(x *pretence, step *Step) { x.noAffinities[step.Guard(GuardName)] = true },
}

// deletedAffinity says why an affinity that is gone is not created again, as the cluster is
// now: it is there again, its node owns the block by now, or it would do harm still.
func (b *Begun) deletedAffinity() Move {
	host, cidr := b.Step.Target.Node, b.Step.Target.CIDR
	x := blockAt(b.State, cidr)
	switch a := affinityOf(b.State, cidr, host); {
	case a != nil:
		return nothing(Already, fmt.Sprintf("%s has an affinity to %s again, created %s", host, cidr, phrase.Time(a.Created)))
	case x == nil:
		return cannot(SkipHarm, "an affinity without its block is not created again: it would keep %s from every other node", cidr)
	case x.Owner.Node() == host:
		return cannot(SkipHarm, "block %s belongs to %s by now, and the affinity is not created again: --missing-affinities does that when the claim is past its grace", cidr, host)
	}
	return cannot(SkipHarm, "block %s belongs to %s, and the affinity of %s is not created again: its node would black-hole the block", cidr, ownerText(x.Owner), host)
}

func bare(b *state.Block) *blocks.Block {
	if b == nil {
		return nil
	}
	return b.Block
}

func (p *proposals) affinityConcern(a *blocks.Affinity) concern {
	c := concern{state.AffinitySubject(a), poolNames(p.st.PoolOf(a.CIDR)), []string{a.Owner.Node()}}
	if b := p.st.BlockOf(a.CIDR); b != nil {
		c.nodes = append(c.nodes, b.Owner.Node())
	}
	return c
}

// proposeDelete judges an affinity whose block does not exist or is not its
// owner's.
func (p *proposals) proposeDelete(a *blocks.Affinity) {
	c, st, b := p.affinityConcern(a), p.st, p.st.BlockOf(a.CIDR)
	if p.bars(c, p.mustKeep(a, b)) {
		return
	}
	because := fmt.Sprintf("affinity of %s to %s exists, its IPAMBlock does not", phrase.Owner(a.Owner), a.CIDR)
	block, uid, owner := "none exists", Absent, ""
	if b != nil {
		because = fmt.Sprintf("%s has an affinity to block %s, which belongs to %s", phrase.Owner(a.Owner), a.CIDR, phrase.Owner(b.Owner))
		block, uid, owner = fmt.Sprintf("%s, owner %s, %s in use", b.Name, phrase.Owner(b.Owner), phrase.Plural(b.Used, "address")), b.UID, ownerGuard(b.Owner)
		if b.UID == "" {
			p.refuse(c, RefusedUnpinned, "its block's object carries no UID, so nothing says later that it is still the same")
			return
		}
	}
	p.add(c, Step{
		TwoObservations: true,
		Because:         because,
		Evidence: state.Evidences("state", string(a.Effective()), "block", block, "host", hostText(st, a.Owner.Node()),
			"created", phrase.Time(a.Created), "last written", phrase.Time(a.Written)),
		Guards: guards(GuardName, a.Name, GuardUID, a.UID, GuardVersion, a.ResourceVersion, GuardCreated, phrase.Time(a.Created),
			GuardAffinityState, string(a.Effective()), GuardBlockUID, uid, GuardOwner, owner),
	}, a.Meta)
}

// mustKeep says why an affinity that no block bears out must not be deleted; an
// empty code if it may.
func (p *proposals) mustKeep(a *blocks.Affinity, b *state.Block) reason {
	st := p.st
	switch {
	case a.Owner.Kind != blocks.HostOwner:
		return special(a.Owner)
	case st.BlockObjects(a.CIDR) > 1:
		return reason{RefusedConflict, "there are several block objects of its CIDR"}
	case st.BlockMayCover(a.CIDR):
		return reason{RefusedNotRead, "a block that cannot be read may be its own"}
	case b != nil && len(b.Faults) > 0:
		return reason{RefusedCorrupt, "its block is corrupt, so its word about the owner is not relied on: " + b.Faults[0]}
	case !st.OldEnough(a.Meta) && !state.HalfDone(a):
		return because(RefusedYoung, "it was written less than %s ago, at %s: a claim or a release in flight passes through this state%s", st.Grace, phrase.Time(lastWrite(a.Meta)), oldFrom(st, lastWrite(a.Meta)))
	case st.ClaimInFlight(a, b):
		return because(RefusedYoung, "its block was made or claimed less than %s ago: a claim in flight passes through this state%s", st.Grace, oldFrom(st, claimTime(b)))
	}
	if b == nil && st.OnlyWay(a) {
		return because(RefusedHeals, "automatic blocks are off, and the next pod on %s makes its block: it would get no other", a.Owner.Node())
	}
	if b == nil {
		return p.retainedWithoutBlock(a)
	}
	return reason{}
}

// claimTime returns when a block was made or, if that is later, claimed.
func claimTime(b *state.Block) blocks.Time { return b.Created.Later(b.Claimed) }

// special says that an owner is not a node; none if it is one.
func special(o blocks.Owner) reason {
	switch {
	case o.Kind == blocks.VirtualOwner:
		return reason{RefusedSpecial, "it serves LoadBalancer services"}
	case o.Kind != blocks.HostOwner:
		return because(RefusedSpecial, "its owner is written as %q, which Calico does not understand", o)
	}
	return reason{}
}

// retainedWithoutBlock says whether somebody uses addresses of a CIDR that has no
// block, as after blocks were deleted by hand. The affinity then is the last that
// keeps the CIDR from being claimed by another node.
func (p *proposals) retainedWithoutBlock(a *blocks.Affinity) reason {
	if name, unread := p.st.UnreadPod(); unread {
		return reason{RefusedNotRead, "pod " + name + " could not be read and may use an address of its CIDR"}
	}
	if who := p.st.UnrecordedUser(a.CIDR); who != "" {
		return reason{RefusedInUse, "its block is gone, and " + who + " still: without the affinity another node could claim the CIDR"}
	}
	if uses := p.st.Views.UsesIn(a.CIDR); len(uses) > 0 {
		return because(RefusedHostView, "its block is gone, and %s of it is in use in %s", uses[0].Addr, uses[0])
	}
	return reason{}
}

// refuseUnconfirmed says what becomes of an affinity to its own host's block that
// stays pending or pendingDeletion.
func (p *proposals) refuseUnconfirmed(a *blocks.Affinity) {
	b := p.st.BlockOf(a.CIDR)
	if !p.st.OldEnough(a.Meta) && !state.HalfDone(a) {
		return // a claim or a release in flight: nothing is wrong
	}
	c, host := p.affinityConcern(a), a.Owner.Node()
	switch {
	case a.Owner.Kind != blocks.HostOwner:
		p.refuse(c, RefusedSpecial, "it is not a node's")
	case b.Used == 0:
		if p.only == "" {
			return // the block may be released with it: release-block says whether
		}
		p.refuse(c, RefusedHeals, "its block is empty: release-block releases both, if its node keeps another")
	case p.st.Vanished(host) && p.req.DeadNodes && p.only == "": // disown-block says whether both may go
	case p.st.Vanished(host):
		p.refuse(c, RefusedInUse, "its block still holds %s, and names %s, which no longer exists: the affinity can only go with the block", phrase.Plural(b.Used, "address"), host)
	default:
		p.refuse(c, RefusedHeals, "it is %s on its own node's block, which holds %s: the next pod that starts on %s confirms it", a.Effective(), phrase.Plural(b.Used, "address"), host)
	}
}

// hostText says what a host is.
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
