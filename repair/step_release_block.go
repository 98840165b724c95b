package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// releaseBlock deletes an empty block together with its owner's affinity to it, as
// Calico's own collector does. The verdict is the audit's: a block is released if
// and only if the report calls it releasable.
var releaseBlock = &stepKind{
	kind:  ReleaseBlock,
	flag:  "--empty-blocks",
	asked: func(r Request) bool { return r.EmptyBlocks || r.OrphanAffinities },
	needs: audit.ReleaseNeeds(),
	exact: []string{GuardName, GuardUID, GuardVersion, GuardOwner, GuardAffinity, GuardAffinityUID, GuardAffinityVersion},
	propose: func(p *proposals) {
		for _, b := range p.st.IPBlocks {
			// Asked for orphaned affinities alone, a block goes only if its owner's
			// affinity has broken off half-way: nothing less than both may go then.
			if !p.wants(audit.BlockSubject(b)) || b.Used == 0 && !p.req.EmptyBlocks && !brokenOff(p.st, b) {
				continue
			}
			c := blockConcern(b)
			if b.Used > 0 {
				if p.only != "" {
					p.refuse(c, RefusedInUse, "it holds %s", audit.Plural(b.Used, "address"))
				}
				continue
			}
			if !b.Release.OK {
				p.refuse(c, holdCodes[b.Release.Code], "%s", b.Release.Held)
				continue
			}
			p.addRelease(b, c)
		}
	},
	refs: func(st *audit.State, s *Step) []blocks.Ref {
		r := newRefs(st)
		cidr := prefixOf(s.Target)
		r.block(cidr)
		r.claims(cidr, hostOf(s.Guard(GuardOwner)))
		r.host(hostOf(s.Guard(GuardOwner)))
		return r.out
	},
	do: func(ctx context.Context, w Writer, st *audit.State, s *Step) error {
		b := blockAt(st, s.Target.CIDR)
		if b == nil {
			return errGone(s)
		}
		var claim *ObjectRef
		if a := ownAffinity(st, b); a != nil {
			ref := pin(blocks.Affinities, a.Meta)
			claim = &ref
		}
		return w.ReleaseBlock(ctx, pin(blocks.Blocks, b.Meta), claim)
	},
	verify: func(st *audit.State, s *Step) error {
		if b := blockAt(st, s.Target.CIDR); b != nil {
			if err := replaced(s, "block", b.Meta); err != nil {
				return err
			}
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, hostOf(s.Guard(GuardOwner)))
	},
	pretend: func(x *pretence, step *Step) {
		x.noBlocks[step.Guard(GuardName)] = true
		x.noAffinities[step.Guard(GuardAffinity)] = true
	},
}

// holdCodes are the codes of what holds an empty block.
var holdCodes = map[audit.Hold]RefusalCode{
	audit.HeldSpecial: RefusedSpecial, audit.HeldMarked: RefusedMarked, audit.HeldCorrupt: RefusedCorrupt,
	audit.HeldLocked: RefusedLocked, audit.HeldUnknownAge: RefusedUnknownAge, audit.HeldYoung: RefusedYoung,
	audit.HeldInUse: RefusedInUse, audit.HeldHostView: RefusedHostView, audit.HeldConflict: RefusedConflict,
	audit.HeldLast: RefusedLastBlock, audit.HeldNotRead: RefusedNotRead,
}

func blockConcern(b *audit.Block) concern {
	return concern{audit.BlockSubject(b), poolNames(b.Pool), []string{b.Owner.Node()}}
}

func (p *proposals) addRelease(b *audit.Block, c concern) {
	keeps := keptBlock(p.st, b)
	twice := p.req.ObserveTwice
	pairs := []string{
		GuardName, b.Name, GuardUID, b.UID, GuardVersion, onlyIf(twice, b.ResourceVersion), GuardCreated, audit.FormatTime(b.Created),
		GuardOwner, ownerGuard(b.Owner), GuardEmptySince, audit.FormatTime(b.Release.EmptySince), GuardKeeps, orAbsent(keeps),
	}
	pinned := []blocks.Meta{b.Meta}
	claim := "no affinity object"
	if a := ownAffinity(p.st, b); a == nil {
		pairs = append(pairs, GuardAffinity, Absent)
	} else {
		claim = fmt.Sprintf("%s (%s)", a.Name, a.Effective())
		pinned = append(pinned, a.Meta)
		pairs = append(pairs, GuardAffinity, a.Name, GuardAffinityUID, a.UID, GuardAffinityVersion, onlyIf(twice, a.ResourceVersion),
			GuardAffinityState, string(a.Effective()))
	}
	p.add(c, Step{
		Because: fmt.Sprintf("block %s of %s has held no address since %s at the latest; %s", b.CIDR, audit.OwnerText(b.Owner),
			audit.FormatTime(b.Release.EmptySince), keepsText(p.st, b, keeps)),
		Evidence: audit.Evidences("owner", audit.OwnerText(b.Owner), "owner's affinity", claim, "pool", poolName(b.Pool),
			"empty since at the latest", audit.FormatTime(b.Release.EmptySince), "created", audit.FormatTime(b.Created)),
		Guards: guards(pairs...),
	}, pinned...)
}

// brokenOff tells whether the owner's affinity to its own block has stayed pending
// or pendingDeletion.
func brokenOff(st *audit.State, b *audit.Block) bool {
	a := ownAffinity(st, b)
	return a != nil && !a.SoftDeleted && affinity.Judge(a, b.Block) == affinity.Unsettled && st.OldEnough(a.Meta)
}

// ownAffinity returns the affinity of a block's owner to it; nil if there is none.
func ownAffinity(st *audit.State, b *audit.Block) *blocks.Affinity {
	if b.Owner == (blocks.Owner{}) {
		return nil
	}
	for _, a := range st.Claims(b.CIDR) {
		if a.Owner == b.Owner {
			return a
		}
	}
	return nil
}

// keptBlock names a block that the owner keeps in the pools that serve its pods: one
// that is usable and is not released.
func keptBlock(st *audit.State, b *audit.Block) string {
	h := st.Host(b.Owner.Node())
	if h == nil || h.Node == nil {
		return ""
	}
	for _, other := range h.Blocks {
		if other == b || other.Family() != b.Family() || !st.Keepable(other) || other.Used == 0 && other.Release.OK {
			continue
		}
		for _, p := range st.WorkloadPools(h.Node, b.Family()) {
			if other.Pool == p {
				return other.CIDR.String()
			}
		}
	}
	return ""
}

func keepsText(st *audit.State, b *audit.Block, keeps string) string {
	host := b.Owner.Node()
	switch {
	case host == "":
		return "nobody owns it"
	case st.Vanished(host):
		return host + " is no node"
	case keeps == "":
		return fmt.Sprintf("no pool that serves pods of %s has it", host)
	}
	return fmt.Sprintf("%s keeps %s", host, keeps)
}
