package repair

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// restoreAffinity gives the owner of a block its affinity object back, without
// which no one routes the block and Calico cannot release it. The block is in use,
// and so its version is not pinned: what must not change is who it is, whose it is,
// and that the affinity is missing both times.
var restoreAffinity = &StepKind{
	kind:  RestoreAffinity,
	flag:  "--missing-affinities",
	asked: func(r Request) bool { return r.MissingAffinities },
	needs: []blocks.Resource{blocks.Affinities, blocks.Blocks, blocks.Nodes, blocks.Pools},
	exact: []string{GuardName, GuardUID, GuardCreated, GuardOwner, GuardAffinity},
	propose: func(p *proposals) {
		for _, b := range p.st.IPBlocks {
			host := b.Owner.Node()
			if host == "" || !p.wants(state.BlockSubject(b)) {
				continue
			}
			if a := ownAffinity(p.st, b); a != nil {
				if a.SoftDeleted && p.st.OldEnough(a.Meta) {
					p.refuse(blockConcern(b), RefusedMarked, "its owner's affinity %s is marked deleted and still there: Calico removes it when it next reads it by name, and then it can be restored", a.Name)
				}
				continue
			}
			p.proposeRestore(b, host)
		}
	},
	refs: func(r *refs, s *Step) {
		r.claim(prefixOf(s.Target), hostOf(s.Guard(GuardOwner)))
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		b := blockAt(st, s.Target.CIDR)
		if b == nil {
			return errGone(s)
		}
		return w.RestoreAffinity(ctx, pin(blocks.Blocks, b.Meta))
	},
	verify: func(st *state.State, s *Step) error {
		a := affinityOf(st, s.Target.CIDR, hostOf(s.Guard(GuardOwner)))
		switch {
		case a == nil:
			return fmt.Errorf("%s still has no affinity to %s", s.Guard(GuardOwner), s.Target.CIDR)
		case a.SoftDeleted || a.Effective() != blocks.Confirmed:
			return fmt.Errorf("affinity %s is there and not confirmed", a.Name)
		}
		switch b := blockAt(st, s.Target.CIDR); {
		case b == nil:
			return left(blocks.Affinities, a.Name, "is left confirmed without its block")
		case b.Owner != a.Owner:
			return left(blocks.Affinities, a.Name, "is left confirmed to a block of %s", ownerText(b.Owner))
		}
		return nil
	},
	// A claim that was left pending is confirmed where the block is its host's; an undo
	// deletes it where the block is not.
	complete: func(b *Begun) Move {
		a, x := b.affinity(), blockAt(b.State, b.Step.Target.CIDR)
		if a == nil || a.State != blocks.Pending || a.CIDR != prefixOf(b.Step.Target) || b.Undo && (a.SoftDeleted || !b.Log.ours(a.Meta)) {
			return Move{}
		}
		its := x != nil && x.Owner == a.Owner
		switch {
		case !b.Undo && its:
			return b.setAffinity(a, blocks.Confirmed, "confirming the affinity")
		case !b.Undo || its && !nodeExists(b.State, a.Owner.Node()):
			return Move{}
		case its:
			return b.setAffinity(a, blocks.Confirmed, "confirm the affinity %s, without which the block would not be routed", a.Name)
		}
		m := b.deleteAffinity(a, fmt.Sprintf("delete the affinity %s, which was created and left pending, and whose block is not its host's", a.Name))
		m.Code = CodeFinished
		return m
	},
	undo: func(b *Begun) Move {
		x := blockAt(b.State, b.Step.Target.CIDR)
		if x == nil || affinityOf(b.State, b.Step.Target.CIDR, x.Owner.Node()) == nil {
			return nothing(Already, "the affinity is gone")
		}
		return cannot(SkipHarm, "the block belongs to %s: without the affinity it would not be routed or found again", ownerText(x.Owner))
	},
	pretend: func(x *pretence, step *Step) {
		host, cidr := hostOf(step.Guard(GuardOwner)), prefixOf(step.Target)
		x.Affinities = append(x.Affinities, blocks.Affinity{
			Meta: blocks.Meta{Name: blocks.AffinityName(host, cidr), Created: x.Cluster.Taken(), Written: x.Cluster.Taken()},
			CIDR: cidr, Owner: blocks.Owner{Kind: blocks.HostOwner, Name: host}, State: blocks.Confirmed,
		})
	},
}

func (p *proposals) proposeRestore(b *state.Block, host string) {
	c, st := blockConcern(b), p.st
	if p.bars(c, p.mustNotRestore(b, host)) {
		return
	}
	p.add(c, Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("block %s belongs to %s, which has no affinity to it: no node routes its %s in use as a block", b.CIDR, host, phrase.Plural(b.Used, "address")),
		Evidence: state.Evidences("owner", host, "in use", fmt.Sprint(b.Used), "affinities to the CIDR", "none", "pool", poolName(b.Pool),
			"created", phrase.Time(b.Created), "host", hostText(st, host)),
		Guards: guards(GuardName, b.Name, GuardUID, b.UID, GuardCreated, phrase.Time(b.Created), GuardOwner, ownerGuard(b.Owner), GuardAffinity, Absent),
	}, b.Meta)
}

// mustNotRestore says why a missing affinity must not be given back; an empty code
// if it may.
func (p *proposals) mustNotRestore(b *state.Block, host string) reason {
	st := p.st
	switch others := claimants(st, b); {
	case b.SoftDeleted:
		return reason{RefusedMarked, "it is marked deleted: --soft-deleted finishes that"}
	case len(b.Faults) > 0:
		return reason{RefusedCorrupt, "it is corrupt, so its word about the owner is not relied on: " + b.Faults[0]}
	case st.BlockObjects(b.CIDR) > 1:
		return reason{RefusedConflict, "there are several block objects of this CIDR"}
	case st.AffinityMayExist(b, host):
		return reason{RefusedNotRead, "an affinity that cannot be read may be its own"}
	case st.UnreadableNode(host):
		return reason{RefusedNotRead, "its node " + host + " could not be read"}
	case st.Vanished(host):
		return because(RefusedConflict, "its host %s no longer exists: nothing is to be routed there (--empty-blocks releases it once it is empty)", host)
	case len(others) > 0:
		return because(RefusedConflict, "%s claims the CIDR, too: that has to be settled first (--orphan-affinities)", phrase.List(others))
	case !st.ClaimPastGrace(b):
		return because(RefusedYoung, "it was made or claimed less than %s ago, at %s: its claim may be under way%s", st.Grace, phrase.Time(claimTime(b)), oldFrom(st, claimTime(b)))
	case p.req.EmptyBlocks && b.Used == 0 && b.Reclaimability.OK:
		return reason{RefusedConflict, "it is empty, and this plan releases it instead"}
	}
	if o := overlapping(st, b); o != nil {
		return because(RefusedConflict, "block %s of %s overlaps it: two owners would be routed", o.CIDR, phrase.Owner(o.Owner))
	}
	return reason{}
}

// nodeExists reports whether a node is known to exist.
func nodeExists(st *state.State, name string) bool {
	_, missing := st.Missing(blocks.Nodes)
	return !missing && !st.UnreadableNode(name) && !st.Vanished(name)
}

func ownerText(o blocks.Owner) string {
	if o == (blocks.Owner{}) {
		return "no one"
	}
	return cmp.Or(o.Node(), o.String())
}

// claimants names those who have an affinity to a block and do not own it.
func claimants(st *state.State, b *state.Block) []string {
	var out []string
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner != b.Owner {
			out = append(out, strings.TrimSpace(phrase.Owner(a.Owner)))
		}
	}
	return out
}

// overlapping returns a block of another size that overlaps a block; nil if there
// is none.
func overlapping(st *state.State, b *state.Block) *state.Block {
	for bits := range b.CIDR.Bits() {
		if wider, err := b.CIDR.Addr().Prefix(bits); err == nil && st.BlockOf(wider) != nil {
			return st.BlockOf(wider)
		}
	}
	i := sort.Search(len(st.IPBlocks), func(i int) bool { return st.IPBlocks[i].CIDR.Addr().Compare(b.CIDR.Addr()) >= 0 })
	for ; i < len(st.IPBlocks) && b.CIDR.Contains(st.IPBlocks[i].CIDR.Addr()); i++ {
		if st.IPBlocks[i].CIDR != b.CIDR {
			return st.IPBlocks[i]
		}
	}
	return nil
}
