package repair

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// A handle is made to count what the blocks record under it: one that counts too much
// would outlive its last address, and one that no block refers to goes. That does no
// harm by being there, so that the least doubt keeps it. A plan calls the two by kinds
// of their own, since counts go before the addresses that lower them, and handles after.
var (
	fixHandleCount = reconcileHandle(FixHandleCount, GuardCounts)
	deleteHandle   = reconcileHandle(DeleteHandle)
)

func reconcileHandle(kind Kind, exact ...string) *StepKind {
	deletes := kind == DeleteHandle
	return &StepKind{
		kind:  kind,
		flag:  "--leaked-handles",
		asked: func(r Request) bool { return r.LeakedHandles },
		needs: []blocks.Resource{blocks.Handles, blocks.Blocks, blocks.Pods},
		exact: append([]string{GuardName, GuardUID, GuardVersion, GuardCreated}, exact...),
		propose: func(p *proposals) {
			if p.podsUnread() {
				return
			}
			doubt := newHandleDoubt(p.st)
			for i := range p.st.Handles {
				if h := &p.st.Handles[i]; !h.SoftDeleted && p.wants(state.HandleSubject(h.ID)) {
					p.reconcile(h, deletes, doubt)
				}
			}
		},
		refs: handleStepRefs,
		do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
			h := handleNamed(st, s.Guard(GuardName))
			switch {
			case h == nil:
				return errGone(s)
			case deletes:
				return w.DeleteHandle(ctx, pin(blocks.Handles, h.Meta))
			}
			_, right := st.Miscounts(h)
			return w.SetHandleCounts(ctx, pin(blocks.Handles, h.Meta), right)
		},
		verify: func(st *state.State, s *Step) error {
			h := handleNamed(st, s.Guard(GuardName))
			switch {
			case h == nil: // right for a count, too, if its last address was given back
				return usedHandle(st, s.Guard(GuardName), s.Target.Name)
			case deletes:
				return replaced(s, "handle", h.Meta)
			}
			wrong, right := st.Miscounts(h)
			if len(wrong) == 0 || countsGuard(h.Blocks) == s.Guard(GuardCounts) || sameCounts(h.Blocks, right) {
				return nil
			}
			return fmt.Errorf("handle %s still counts otherwise than the blocks: %s", h.ID, phrase.List(wrong))
		},
		complete: func(b *Begun) Move {
			if c := b.Log.first(blocks.Handles); c != nil && deletes {
				if h := handleNamed(b.State, c.Name); h != nil && h.SoftDeleted {
					return b.endHandle(h)
				}
			}
			return Move{}
		},
		undo: func(b *Begun) Move {
			if deletes {
				return b.recreateHandle()
			}
			return b.fixedHandle()
		},
		pretend: func(x *pretence, step *Step) {
			if h := x.handles[step.Guard(GuardName)]; deletes {
				x.noHandles[step.Guard(GuardName)] = true
			} else if h != nil {
				h.Blocks = parseCounts(step.Guard(GuardCounts))
			}
		},
	}
}

// reconcile proposes a handle's deletion, or its counts.
func (p *proposals) reconcile(h *blocks.Handle, deletes bool, doubt *handleDoubt) {
	c, refs := handleConcern(p.st, h), p.st.HandleRefs(h.ID)
	if deletes != (len(refs) == 0) {
		if deletes && p.only != "" {
			p.refuse(c, RefusedInUse, "%s recorded under it", phrase.Plural(len(refs), "address"))
		}
		return
	}
	wrong, right := p.st.Miscounts(h)
	if !deletes && len(wrong) == 0 {
		return
	}
	if p.bars(c, doubt.inFlight(h, refs)) {
		return
	}
	s := Step{TwoObservations: true, Because: fmt.Sprintf("no block refers to handle %s", h.ID)}
	evidence := []string{"it counts", orAbsent(countsText(h.Blocks))}
	pairs := []string{GuardName, h.Name, GuardUID, h.UID, GuardVersion, h.ResourceVersion, GuardCreated, phrase.Time(h.Created)}
	if deletes {
		evidence = append(evidence, "created", phrase.Time(h.Created))
	} else {
		s.Because = fmt.Sprintf("handle %s counts otherwise than the blocks: %s", h.ID, phrase.List(wrong))
		evidence, pairs = append(evidence, "recorded are", countsText(right)), append(pairs, GuardCounts, countsGuard(right))
	}
	s.Evidence, s.Guards = state.Evidences(append(evidence, "last written", phrase.Time(h.Written))...), guards(pairs...)
	p.add(c, s, h.Meta)
}

// recreateHandle creates the handle again, if there is none of its name, and if it was
// this run that deleted it.
func (b *Begun) recreateHandle() Move {
	c := b.Log.first(blocks.Handles)
	if c == nil || c.Before == nil {
		return cannot(SkipUnknown, "the journal does not hold the handle")
	}
	switch h := handleNamed(b.State, c.Name); {
	case h == nil && !b.Log.deleteSent(c):
		return cannot(SkipUnknown, "the handle is gone, and the journal does not show that it was deleted here: Calico may have removed it, and created again it would be leaked")
	case h == nil:
		return toWrite(func(ctx context.Context) error { return b.Writer.RecreateHandle(ctx, c.Before) }, "create the handle again")
	case h.UID != c.was().Metadata.UID:
		return nothing(Already, "a handle of this name was made since")
	case h.SoftDeleted:
		return cannot(SkipChanged, "it is marked deleted, and Calico removes it at its next reading")
	}
	return nothing(Already, "it was not deleted after all")
}

// fixedHandle says why a handle's counts are not written as they were, as the cluster is
// now.
func (b *Begun) fixedHandle() Move {
	c := b.Log.first(blocks.Handles)
	if c == nil {
		return cannot(SkipUnknown, "the journal does not hold the handle")
	}
	h := handleNamed(b.State, c.Name)
	if h == nil || h.UID != c.UID() {
		return nothing(NotNeeded, "the handle whose counts were written does not exist any more")
	}
	const harm = "counts that contradict the blocks are not written again: the handle would outlive its last address, or go before it"
	if wrong, _ := b.State.Miscounts(h); len(wrong) > 0 {
		return cannot(SkipHarm, "it counts otherwise than the blocks by now (%s), which --leaked-handles mends; %s", phrase.List(wrong), harm)
	}
	return cannot(SkipHarm, "it counts what the blocks record, and %s", harm)
}

// endHandle deletes a handle that the run marked.
func (b *Begun) endHandle(h *blocks.Handle) Move {
	c := b.Log.first(blocks.Handles)
	if c == nil || h.UID != c.was().Metadata.UID || len(b.State.HandleRefs(h.ID)) > 0 {
		return Move{}
	}
	return b.endMark(blocks.Handles, h.Meta)
}

func handleConcern(st *state.State, h *blocks.Handle) concern {
	c := concern{target: state.HandleSubject(h.ID)}
	for _, n := range h.Blocks {
		c.pools = append(c.pools, poolNames(st.PoolOf(n.CIDR))...)
	}
	for _, r := range st.HandleRefs(h.ID) {
		c.pools = append(c.pools, poolNames(r.Block.Pool)...)
		if attr := r.Attributes(); attr != nil {
			c.nodes = append(c.nodes, attr.Node)
		}
	}
	return c
}

// handleStepRefs are what a step about a handle rests on.
func handleStepRefs(r *refs, s *Step) {
	r.one(blocks.Handles, s.Guard(GuardName))
	r.handle(s.Target.Name)
	if w := sandboxes(r.st)[sandboxOf(s.Target.Name)]; w != nil {
		r.pod(w.Namespace, w.Name)
	}
}

type handleDoubt struct {
	st *state.State
	// corrupt are the handles that corrupt blocks name anywhere, with the block.
	corrupt map[string]*state.Block
	// sandboxes are the pods by the sandbox that they name.
	sandboxes map[string]*blocks.Workload
	// twice are the IDs that several handle objects have.
	twice map[string]bool
}

func newHandleDoubt(st *state.State) *handleDoubt {
	d := &handleDoubt{st: st, corrupt: map[string]*state.Block{}, sandboxes: sandboxes(st), twice: map[string]bool{}}
	for _, b := range st.IPBlocks {
		if len(b.Faults) == 0 {
			continue
		}
		for i := range b.Attributes {
			d.corrupt[strings.ToLower(b.Attributes[i].Handle)] = b
		}
	}
	seen := map[string]bool{}
	for i := range st.Handles {
		id := strings.ToLower(st.Handles[i].ID)
		d.twice[id] = seen[id]
		seen[id] = true
	}
	return d
}

// sandboxes returns the pods that are not finished, by the sandbox that Calico's
// annotation names.
func sandboxes(st *state.State) map[string]*blocks.Workload {
	out := map[string]*blocks.Workload{}
	for i := range st.Workloads {
		if w := &st.Workloads[i]; w.ContainerID != "" && w.Live() {
			out[strings.ToLower(w.ContainerID)] = w
		}
	}
	return out
}

// sandboxOf returns the sandbox that a handle is named after: the CNI plugin makes
// its ID of the network's name, a dot and the container's ID (cni-plugin
// internal/pkg/utils, GetHandleID).
func sandboxOf(handle string) string {
	return strings.ToLower(handle[strings.LastIndex(handle, ".")+1:])
}

// about says why a handle must not be touched whatever the blocks say; an empty
// code if it may.
func (d *handleDoubt) about(h *blocks.Handle) reason {
	id := strings.ToLower(h.ID)
	switch {
	case id == strings.ToLower(blocks.WindowsReservedHandle):
		return reason{RefusedSpecial, "it stands for the addresses that Windows nodes keep back"}
	case d.twice[id]:
		return reason{RefusedConflict, "several handle objects have this ID"}
	case d.corrupt[id] != nil:
		return because(RefusedCorrupt, "block %s names it and contradicts itself: %s", d.corrupt[id].CIDR, d.corrupt[id].Faults[0])
	case len(d.st.Unreadable(blocks.Blocks)) > 0 && d.st.HandleMayBeUsed(h):
		return reason{RefusedNotRead, "a block that cannot be read may refer to it"}
	case d.st.HandleMayBeUsed(h):
		return reason{RefusedCorrupt, "a block that it counts in contradicts itself, and may refer to it"}
	}
	return reason{}
}

// inFlight is about, and says whether the handle's pod is starting or ending, or anything
// about it is young: handle and block are written one after the other.
func (d *handleDoubt) inFlight(h *blocks.Handle, refs []state.AllocationRef) reason {
	if r := d.about(h); r.code != "" {
		return r
	}
	if !d.st.OldEnough(h.Meta) {
		order := ""
		if len(refs) == 0 {
			order = ": a handle is written before the address that it counts"
		}
		at := lastWrite(h.Meta)
		return because(RefusedYoung, "it was written less than %s ago, at %s%s%s", d.st.Grace, phrase.Time(at), order, oldFrom(d.st, at))
	}
	w := d.sandboxes[sandboxOf(h.ID)]
	if w != nil && len(refs) == 0 {
		return because(RefusedInUse, "pod %s names its sandbox, and may be about to use it", w.FullName())
	}
	if moving(w) {
		return reason{RefusedInUse, "pod " + w.FullName() + " is starting or ending"}
	}
	for _, r := range refs {
		if at := state.AssignedAt(r); !d.st.PastGrace(at) {
			return because(RefusedYoung, "%s was assigned under it less than %s ago, at %s%s", r.Addr(), d.st.Grace, phrase.Time(at), oldFrom(d.st, at))
		}
		attr := r.Attributes()
		if w := d.st.Pod(attr.Namespace, attr.Pod); moving(w) {
			return reason{RefusedInUse, "pod " + w.FullName() + " is starting or ending"}
		}
	}
	return reason{}
}

// moving reports whether a pod's network may be in the making or in the taking down.
func moving(w *blocks.Workload) bool {
	return w != nil && (w.Phase == "Pending" || !w.Deleting.IsZero())
}

func countsText(counts []blocks.HandleCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%d in %s", c.Count, c.CIDR))
	}
	return phrase.List(out)
}

// countsGuard writes counts as the value of [GuardCounts].
func countsGuard(counts []blocks.HandleCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%s=%d", c.CIDR, c.Count))
	}
	return strings.Join(out, ",")
}

// sameCounts compares counts, whatever their order.
func sameCounts(a, b []blocks.HandleCount) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	for _, s := range [][]blocks.HandleCount{x, y} {
		slices.SortFunc(s, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	}
	return slices.Equal(x, y)
}

// parseCounts reads what countsGuard writes; what it cannot read it leaves out.
func parseCounts(s string) []blocks.HandleCount {
	var out []blocks.HandleCount
	for _, part := range strings.Split(s, ",") {
		cidr, count, _ := strings.Cut(part, "=")
		p, err := netip.ParsePrefix(cidr)
		n, err2 := strconv.Atoi(count)
		if err == nil && err2 == nil {
			out = append(out, blocks.HandleCount{CIDR: p, Count: n})
		}
	}
	return out
}
