package repair

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file judge the objects that are marked deleted.

// special says that an owner is not a node; an empty code if it is one, or nobody.
func special(o blocks.Owner) (RefusalCode, string) {
	switch {
	case o.Kind == blocks.VirtualOwner:
		return RefusedSpecial, "it serves LoadBalancer services"
	case o != (blocks.Owner{}) && o.Kind != blocks.HostOwner:
		return RefusedSpecial, fmt.Sprintf("its owner is written as %q, which Calico does not understand", o)
	}
	return "", ""
}

func (p *proposals) finishBlock(b *audit.Block) {
	c := blockConcern(b)
	code, why := special(b.Owner)
	if code == "" {
		code, why = p.blockMustStay(b)
	}
	if code != "" {
		p.refuse(c, code, "%s", why)
		return
	}
	twice := p.req.ObserveTwice
	pairs := append(p.markGuards(b.Meta), GuardOwner, ownerGuard(b.Owner))
	pinned, also := []blocks.Meta{b.Meta}, ""
	if a := ownAffinity(p.st, b); a == nil || a.SoftDeleted {
		pairs = append(pairs, GuardAffinity, Absent)
	} else {
		pinned, also = append(pinned, a.Meta), ", with its owner's affinity, which would lead to no block"
		pairs = append(pairs, GuardAffinity, a.Name, GuardAffinityUID, a.UID, GuardAffinityVersion, onlyIf(twice, a.ResourceVersion),
			GuardAffinityState, string(a.Effective()))
	}
	p.add(c, Step{
		Because:  fmt.Sprintf("block %s of %s was marked deleted by %s and never removed; it holds no address and goes%s", b.CIDR, audit.OwnerText(b.Owner), audit.FormatTime(lastWrite(b.Meta)), also),
		Evidence: audit.Evidences("owner", audit.OwnerText(b.Owner), "pool", poolName(b.Pool), "created", audit.FormatTime(b.Created), "last written", audit.FormatTime(b.Written)),
		Guards:   guards(pairs...),
	}, pinned...)
}

// markGuards pins an object that is marked deleted.
func (p *proposals) markGuards(m blocks.Meta) []string {
	return []string{
		GuardName, m.Name, GuardUID, m.UID, GuardVersion, onlyIf(p.req.ObserveTwice, m.ResourceVersion), GuardCreated, audit.FormatTime(m.Created),
	}
}

func (p *proposals) blockMustStay(b *audit.Block) (RefusalCode, string) {
	st := p.st
	if b.Used > 0 {
		return RefusedInUse, fmt.Sprintf("it is marked deleted and holds %s: whoever uses them must end first", audit.Plural(b.Used, "address"))
	}
	if len(b.Faults) > 0 {
		return RefusedCorrupt, "it is corrupt: " + b.Faults[0]
	}
	if st.BlockObjects(b.CIDR) > 1 {
		return RefusedConflict, "there are several block objects of this CIDR"
	}
	if code, why := p.markAge(b.Meta); code != "" {
		return code, why
	}
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		return RefusedInUse, who + ", though the block does not record it"
	}
	if uses := st.HostUsesIn(b.CIDR); len(uses) > 0 {
		return RefusedHostView, fmt.Sprintf("%s of it is in use in %s", uses[0].Addr, uses[0])
	}
	own := 0
	for _, a := range st.Claims(b.CIDR) {
		if a.Owner == b.Owner && !a.SoftDeleted {
			own++
		}
	}
	switch {
	case own > 1:
		return RefusedConflict, "its owner has several affinity objects to it"
	case own == 0 && st.AffinityMayExist(b, b.Owner.Node()):
		return RefusedNotRead, "an affinity that cannot be read may be its own"
	}
	return "", ""
}

func (p *proposals) finishAffinity(a *blocks.Affinity) {
	c, b := p.affinityConcern(a), p.st.BlockOf(a.CIDR)
	code, why := special(a.Owner)
	if code == "" {
		code, why = p.affinityMustStay(a, b)
	}
	if code != "" {
		p.refuse(c, code, "%s", why)
		return
	}
	block := "none exists"
	if b != nil {
		block = fmt.Sprintf("%s, owner %s, %s in use", b.Name, audit.OwnerText(b.Owner), audit.Plural(b.Used, "address"))
	}
	p.add(c, Step{
		Because: fmt.Sprintf("affinity of %s to %s was marked deleted by %s and never removed", audit.OwnerText(a.Owner), a.CIDR, audit.FormatTime(lastWrite(a.Meta))),
		Evidence: audit.Evidences("state", string(a.Effective()), "block", block, "host", hostText(p.st, a.Owner.Node()),
			"created", audit.FormatTime(a.Created), "last written", audit.FormatTime(a.Written)),
		Guards: guards(p.markGuards(a.Meta)...),
	}, a.Meta)
}

func (p *proposals) affinityMustStay(a *blocks.Affinity, b *audit.Block) (RefusalCode, string) {
	if code, why := p.markAge(a.Meta); code != "" {
		return code, why
	}
	switch {
	case p.st.BlockObjects(a.CIDR) > 1:
		return RefusedConflict, "there are several block objects of its CIDR"
	case p.st.BlockMayCover(a.CIDR):
		return RefusedNotRead, "a block that cannot be read may be its own"
	case b == nil:
		return p.heldWithoutBlock(a)
	case len(b.Faults) > 0:
		return RefusedCorrupt, "its block is corrupt, so its word about the owner is not relied on: " + b.Faults[0]
	case b.Owner == a.Owner && b.Used > 0:
		return RefusedInUse, fmt.Sprintf("its block still names %s and holds %s: without the affinity nobody would route it. Once it is gone (Calico removes it when it next reads it by name), --missing-affinities gives it back", audit.OwnerText(a.Owner), audit.Plural(b.Used, "address"))
	}
	return "", ""
}

func (p *proposals) finishHandle(h *blocks.Handle, doubt *handleDoubt) {
	c := handleConcern(p.st, h)
	code, why := doubt.about(h)
	if code == "" {
		code, why = p.markAge(h.Meta)
	}
	if n := len(p.st.HandleRefs(h.ID)); code == "" && n > 0 {
		code, why = RefusedInUse, fmt.Sprintf("blocks record %s under it: without it they could not be given back", audit.Plural(n, "address"))
	}
	if w := doubt.sandboxes[sandboxOf(h.ID)]; code == "" && w != nil {
		code, why = RefusedInUse, fmt.Sprintf("pod %s names its sandbox, and may be about to use it", w.FullName())
	}
	if code != "" {
		p.refuse(c, code, "%s", why)
		return
	}
	p.add(c, Step{
		Because: fmt.Sprintf("handle %s was marked deleted by %s and never removed, and no block refers to it", h.ID, audit.FormatTime(lastWrite(h.Meta))),
		Evidence: audit.Evidences("it counts", orAbsent(countsText(h.Blocks)), "created", audit.FormatTime(h.Created),
			"last written", audit.FormatTime(h.Written)),
		Guards: guards(p.markGuards(h.Meta)...),
	}, h.Meta)
}
