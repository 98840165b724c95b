package repair

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// unwritten: a step that was skipped wrote nothing, or took it back; what is missing
// now, others have taken away. Only an affinity that is still as this run's own
// write left it gets its state back.
func (u *undoing) unwritten(s *Step, changes []Change) undoAction {
	if c := firstChange(changes, blocks.Affinities); c != nil {
		if a := affinityNamed(u.state, c.Name); a != nil && mustStay(u.state, u.file, s.ID, a, c) == "" {
			return u.affinityState(s, a, c)
		}
	}
	return nothingToUndo(NotNeeded, "nothing was written: the step was skipped")
}

// releaseBlock: an empty block needs no restoring. Where the run broke off, the
// affinity may have been left in pendingDeletion.
func (u *undoing) releaseBlock(s *Step, changes []Change) undoAction {
	c := firstChange(changes, blocks.Affinities)
	b := blockAt(u.state, s.Target.CIDR)
	if c != nil && b != nil && !b.SoftDeleted {
		if a := affinityNamed(u.state, c.Name); a != nil && a.UID == storedObject(c.Before).Metadata.UID && a.Owner == b.Owner {
			return u.affinityState(s, a, c)
		}
	}
	return nothingToUndo(NotNeeded, "an empty block needs no restoring: the next node that needs one claims it anew")
}

// affinityState puts back the state of an affinity that was not deleted after all.
func (u *undoing) affinityState(s *Step, a *blocks.Affinity, c *Change) undoAction {
	was := blocks.AffinityState(storedObject(c.Before).Spec.State)
	if a.State == was {
		return nothingToUndo(Already, "the affinity is as it was")
	}
	if a.State != blocks.PendingDeletion || a.SoftDeleted {
		return cannotUndo(SkipChanged, "the affinity was written since: its state is %q", a.State)
	}
	if why := mustStay(u.state, u.file, s.ID, a, c); why != "" {
		return cannotUndo(SkipChanged, "the affinity does not get its state %q back: %s; %s", was, why, staysText)
	}
	ref := pin(blocks.Affinities, a.Meta)
	return takeBack(func(ctx context.Context) error { return u.back.PutAffinityState(ctx, ref, was) },
		"give the affinity %s its state %q back", a.Name, was)
}

// deleteAffinity creates the affinity anew, if nobody claimed the block since, and if
// it was this run that deleted it.
func (u *undoing) deleteAffinity(s *Step, changes []Change) undoAction {
	c := firstChange(changes, blocks.Affinities)
	if c == nil || c.Before == nil {
		return cannotUndo(SkipUnknown, "the journal does not hold the affinity")
	}
	was := storedObject(c.Before)
	for _, needed := range []blocks.Resource{blocks.Blocks, blocks.Affinities} {
		if g, missing := u.state.Missing(needed); missing {
			return cannotUndo(SkipCode(RefusedNotRead), "not judged: %s", g)
		}
	}
	if b := blockAt(u.state, was.Spec.CIDR); b != nil && b.Owner.Node() != was.Spec.Node {
		return cannotUndo(SkipCode(RefusedConflict), "the block %s belongs to %s: with the affinity back, %s would drop its traffic",
			was.Spec.CIDR, ownerText(b.Owner), was.Spec.Node)
	}
	for i := range u.state.Affinities {
		a := &u.state.Affinities[i]
		if a.CIDR.String() != was.Spec.CIDR {
			continue
		}
		switch {
		case a.Owner.Node() != was.Spec.Node:
			return cannotUndo(SkipCode(RefusedConflict), "%s has claimed the block since", ownerText(a.Owner))
		case a.UID != was.Metadata.UID:
			return nothingToUndo(Already, "%s has an affinity to the block again", was.Spec.Node)
		}
		return u.affinityState(s, a, c)
	}
	if code, why := u.noNode(was.Spec.Node); code != "" {
		return cannotUndo(code, "%s", why)
	}
	if !u.file.deleteSent(s.ID, c) {
		return cannotUndo(SkipUnknown, "the affinity %s is gone, and the journal does not show that it was deleted here: its node may have given it up; look at it by hand", c.Name)
	}
	return takeBack(func(ctx context.Context) error { return u.back.RecreateAffinity(ctx, c.Before) },
		"create the affinity %s again", c.Name)
}

// noNode says why a node gets no affinity: it does not exist, or that is not known.
func (u *undoing) noNode(name string) (SkipCode, string) {
	if g, missing := u.state.Missing(blocks.Nodes); missing {
		return SkipCode(RefusedNotRead), fmt.Sprintf("not judged: %s", g)
	}
	switch {
	case u.state.UnreadableNode(name):
		return SkipCode(RefusedNotRead), fmt.Sprintf("not judged: node %s could not be read", name)
	case u.state.Vanished(name):
		return SkipHarm, fmt.Sprintf("node %s no longer exists: its affinity would keep the block from every other node", name)
	}
	return "", ""
}

func ownerText(o blocks.Owner) string {
	if o == (blocks.Owner{}) {
		return "nobody"
	}
	if n := o.Node(); n != "" {
		return n
	}
	return o.String()
}

// restoreAffinity: the block must not lose its affinity again.
func (u *undoing) restoreAffinity(s *Step) undoAction {
	b := blockAt(u.state, s.Target.CIDR)
	if b == nil || affinityOf(u.state, s.Target.CIDR, b.Owner.Node()) == nil {
		return nothingToUndo(Already, "the affinity is gone")
	}
	return cannotUndo(SkipHarm, "the block belongs to %s: without the affinity it would not be routed or found again", ownerText(b.Owner))
}

// releaseIP records the address anew, if it is still free in the same block.
func (u *undoing) releaseIP(s *Step, changes []Change) undoAction {
	c := firstChange(changes, blocks.Blocks)
	if c == nil || c.Before == nil {
		return cannotUndo(SkipUnknown, "the journal does not hold the block")
	}
	was := storedObject(c.Before)
	b := blockAt(u.state, was.Spec.CIDR)
	switch {
	case b == nil:
		return cannotUndo(SkipGone, "its block %s does not exist any more", was.Spec.CIDR)
	case b.UID != was.Metadata.UID:
		return cannotUndo(SkipChanged, "its block %s was deleted and made anew since", was.Spec.CIDR)
	case b.SoftDeleted:
		return cannotUndo(SkipChanged, "its block %s is marked deleted", was.Spec.CIDR)
	case len(b.Faults) > 0:
		return cannotUndo(SkipCode(RefusedCorrupt), "its block is corrupt: %s", b.Faults[0])
	}
	addr, err := netip.ParseAddr(s.Target.IP)
	ordinal, ok := b.Ordinal(addr)
	if err != nil || !ok {
		return cannotUndo(SkipUnknown, "%q is no address of %s", s.Target.IP, was.Spec.CIDR)
	}
	if b.Ordinals[ordinal] != blocks.Free {
		if at := b.At(ordinal); at != nil && at.Handle == s.Guard(GuardHandle) {
			return nothingToUndo(Already, "the address is recorded again")
		}
		return cannotUndo(SkipCode(RefusedInUse), "the address was given to somebody else since")
	}
	if !u.file.freed(s.ID) {
		return cannotUndo(SkipUnknown, "the address is free, and the journal does not show that it was freed here: its node may have released it, and recorded again it would be leaked")
	}
	ref := pin(blocks.Blocks, b.Meta)
	handle := firstChange(changes, blocks.Handles)
	return takeBack(func(ctx context.Context) error {
		if handle == nil {
			return u.back.RecordIP(ctx, ref, ordinal, c.Before, nil)
		}
		return u.back.RecordIP(ctx, ref, ordinal, c.Before, handle.Before)
	}, "record the address as allocated again")
}

// deleteHandle creates the handle anew, if there is none of its name, and if it was
// this run that deleted it.
func (u *undoing) deleteHandle(s *Step, changes []Change) undoAction {
	c := firstChange(changes, blocks.Handles)
	if c == nil || c.Before == nil {
		return cannotUndo(SkipUnknown, "the journal does not hold the handle")
	}
	switch h := handleNamed(u.state, c.Name); {
	case h == nil && !u.file.deleteSent(s.ID, c):
		return cannotUndo(SkipUnknown, "the handle is gone, and the journal does not show that it was deleted here: Calico may have removed it, and created again it would be leaked")
	case h == nil:
		return takeBack(func(ctx context.Context) error { return u.back.RecreateHandle(ctx, c.Before) }, "create the handle again")
	case h.UID != storedObject(c.Before).Metadata.UID:
		return nothingToUndo(Already, "a handle of this name was made since")
	case h.SoftDeleted:
		return cannotUndo(SkipChanged, "it is marked deleted, and Calico removes it at its next reading")
	}
	return nothingToUndo(Already, "it was not deleted after all")
}

// fixHandleCount puts the counts back, if they are those that were written.
func (u *undoing) fixHandleCount(changes []Change) undoAction {
	c := firstChange(changes, blocks.Handles)
	if c == nil || c.Before == nil || c.After == nil {
		return cannotUndo(SkipUnknown, "the journal does not hold the handle")
	}
	was, wrote := storedObject(c.Before), storedObject(c.After)
	h := handleNamed(u.state, c.Name)
	switch {
	case h == nil:
		return cannotUndo(SkipGone, "the handle does not exist any more")
	case h.UID != was.Metadata.UID:
		return cannotUndo(SkipChanged, "the handle was deleted and made anew since")
	case slices.Equal(h.Blocks, handleCounts(was.Spec.Block)):
		return nothingToUndo(Already, "its counts are as they were")
	case !slices.Equal(h.Blocks, handleCounts(wrote.Spec.Block)):
		return cannotUndo(SkipChanged, "its counts were written since")
	}
	ref, counts := pin(blocks.Handles, h.Meta), handleCounts(was.Spec.Block)
	return takeBack(func(ctx context.Context) error { return u.writer.SetHandleCounts(ctx, ref, counts) }, "give the handle its counts back")
}

// handleCounts returns stored counts in CIDR order.
func handleCounts(stored map[string]int) []blocks.HandleCount {
	var out []blocks.HandleCount
	for cidr, n := range stored {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			out = append(out, blocks.HandleCount{CIDR: p, Count: n})
		}
	}
	slices.SortFunc(out, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return out
}

// setStrictAffinity puts the setting back, if it is the one that was written, and
// if a plan that asks for it would. An object that was created stays: without it,
// Calico would take the same values.
func (u *undoing) setStrictAffinity(changes []Change) undoAction {
	c := firstChange(changes, blocks.IPAMConfigs)
	if c == nil || c.After == nil {
		return cannotUndo(SkipUnknown, "the journal does not hold the configuration")
	}
	was := false // what Calico takes where no object exists
	if v := storedObject(c.Before).Spec.StrictAffinity; v != nil {
		was = *v
	}
	wrote := storedObject(c.After).Spec.StrictAffinity
	now := &u.state.IPAM
	switch {
	case now.StrictAffinity == was:
		return nothingToUndo(Already, "the setting is as it was")
	case !now.Present || wrote == nil || now.StrictAffinity != *wrote:
		return cannotUndo(SkipChanged, "the setting was written since")
	}
	if code, why := u.strictRefused(now.StrictAffinity, was); code != "" {
		return cannotUndo(code, "%s", why)
	}
	ref := pin(blocks.IPAMConfigs, now.Meta)
	return takeBack(func(ctx context.Context) error { return u.writer.SetStrictAffinity(ctx, &ref, was) }, "set strict affinity to %t again", was)
}

// strictRefused says why a setting of strict affinity must not be put back: what
// refuses it in a plan, and nodes that would get no address any more, which in a
// plan somebody has looked at.
func (u *undoing) strictRefused(now, was bool) (SkipCode, string) {
	req := Request{StrictAffinity: &was, AllowNewer: u.file.Plan.Request.AllowNewer}
	step, refusal := Derive(u.state, req, stepID(SetStrictAffinity, audit.ConfigSubject()))
	switch {
	case refusal != nil:
		return SkipCode(refusal.Code), refusal.Reason
	case step == nil:
		return SkipNotDerived, "what the cluster holds now gives no reason for it"
	}
	already := starving(u.state, now)
	starve := slices.DeleteFunc(starving(u.state, was), func(node string) bool { return slices.Contains(already, node) })
	if len(starve) > 0 {
		return SkipHarm, fmt.Sprintf("with strict affinity %t the next pod on %s would get no address", was, audit.List(starve))
	}
	return "", ""
}
