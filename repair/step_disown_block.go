package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// disownBlock takes a block away from a node that no longer exists, where pods of other
// nodes use all that it holds: no one can release it while it is in use, and it goes
// with its last address once it belongs to no one. The block is in use, and so its
// version is not pinned.
var disownBlock = &StepKind{
	kind:  DisownBlock,
	flag:  "--dead-nodes",
	asked: func(r Request) bool { return r.DeadNodes },
	needs: state.ReleaseReads,
	exact: []string{
		GuardName, GuardUID, GuardCreated, GuardOwner, GuardAffinity, GuardAffinityUID, GuardAffinityVersion, GuardAffinityState,
	},
	propose: func(p *proposals) {
		for _, b := range p.st.IPBlocks {
			gone := p.st.Vanished(b.Owner.Node())
			if b.Used == 0 || !gone && p.only == "" || !p.wants(state.BlockSubject(b)) {
				continue
			}
			p.proposeDisown(b)
		}
	},
	refs: func(r *refs, s *Step) {
		r.claim(prefixOf(s.Target), hostOf(s.Guard(GuardOwner)))
		b := blockAt(r.st, s.Target.CIDR)
		if b == nil {
			return
		}
		for i, o := range b.Ordinals {
			if o != blocks.Free {
				ref := state.AllocationRef{Block: b, Ordinal: i}
				r.owner(ref)
				r.user(ref)
			}
		}
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		b := blockAt(st, s.Target.CIDR)
		if b == nil {
			return errGone(s)
		}
		return w.DisownBlock(ctx, pin(blocks.Blocks, b.Meta), pinOwnAffinity(st, b))
	},
	verify: func(st *state.State, s *Step) error {
		host := hostOf(s.Guard(GuardOwner))
		if b := blockAt(st, s.Target.CIDR); b != nil && b.Owner.Node() == host {
			if err := replaced(s, "block", b.Meta); err != nil {
				return fmt.Errorf("%w, and belongs to %s", err, host)
			}
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, host)
	},
	complete: func(b *Begun) Move {
		if x := blockAt(b.State, b.Step.Target.CIDR); x != nil && x.Used > 0 && ownerGuard(x.Owner) == b.Step.Guard(GuardOwner) && !b.Undo {
			return b.releaseLeft()
		}
		return b.endAffinity()
	},
	undo: func(b *Begun) Move {
		return b.keepAffinity("a block is not returned to a node that no longer exists: no one could use or release it")
	},
	pretend: func(x *pretence, step *Step) {
		if b := x.blocks[step.Guard(GuardName)]; b != nil {
			b.Owner, b.Claimed = blocks.Owner{}, b.Created
		}
		x.noAffinities[step.Guard(GuardAffinity)] = true
	},
}

func (p *proposals) proposeDisown(b *state.Block) {
	c, host := blockConcern(b), b.Owner.Node()
	if v := p.st.Disownable(b); !v.OK {
		why := v.Held
		if v.Code == state.RetainYoung {
			why += oldFrom(p.st, claimTime(b))
		}
		p.refuse(c, retainCodes[v.Code], "%s", why)
		return
	}
	var users []string
	for _, br := range p.st.NodeState(host).Lent {
		if br.Block == b {
			users, c.nodes = append(users, fmt.Sprintf("%s on %s", br.Addr, br.User)), append(c.nodes, br.User)
		}
	}
	a, pinned := ownAffinity(p.st, b), []blocks.Meta{b.Meta}
	pairs := append([]string{
		GuardName, b.Name, GuardUID, b.UID, GuardCreated, phrase.Time(b.Created), GuardOwner, ownerGuard(b.Owner),
	}, affinityGuards(a, true)...)
	if a != nil {
		pinned = append(pinned, a.Meta)
	}
	p.add(c, Step{
		TwoObservations: true,
		Because: fmt.Sprintf("block %s belongs to node %q, which no longer exists, and pods of other nodes use all that it holds (%s): without an owner it goes with the last of them",
			b.CIDR, host, phrase.Plural(b.Used, "address")),
		Evidence: state.Evidences("owner", host, "in use by", phrase.List(users), "pool", poolName(b.Pool), "created", phrase.Time(b.Created)),
		Guards:   guards(pairs...),
	}, pinned...)
}
