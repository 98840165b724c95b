package planner

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// These two kinds make a handle count the addresses that blocks record under it. A handle with too
// high a count would outlive its last address, so the count is lowered; a handle without references
// is deleted. An extra handle does no harm, so it is kept in case of doubt. They are separate kinds
// because a plan corrects counts before it releases the addresses that lower them, and deletes
// handles afterwards.
var (
	fixHandleCount = reconcileHandle(repair.FixHandleCount, []repair.Right{repair.May(blocks.Handles, "get patch")}, nil, repair.GuardCounts)
	deleteHandle   = reconcileHandle(repair.DeleteHandle, []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Handles, "get patch delete")},
		[]repair.Right{repair.May(blocks.Handles, "get create delete")})
)

func reconcileHandle(kind repair.Kind, rights, undo []repair.Right, exact ...string) *repair.StepKind {
	deletes := kind == repair.DeleteHandle
	return &repair.StepKind{
		Kind:   kind,
		Rights: rights, UndoRights: undo,
		Requires: state.HandleReads,
		AllPods:  true,
		Exact:    append([]string{repair.GuardName, repair.GuardUID, repair.GuardVersion, repair.GuardCreated}, exact...),
		Propose: func(p *repair.Proposals) {
			for _, h := range p.State.Handles {
				if !h.SoftDeleted && p.Wants(state.HandleSubject(h.ID)) {
					reconcile(p, h, deletes)
				}
			}
		},
		AddRefs: handleStepRefs,
		Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
			h := repair.HandleNamed(st, s.Guard(repair.GuardName))
			switch {
			case h == nil:
				return repair.DeletedError(s)
			case deletes:
				return w.DeleteHandle(ctx, repair.Pin(blocks.Handles, h.Meta))
			}
			_, right := st.Miscounts(h)
			return w.SetHandleCounts(ctx, repair.Pin(blocks.Handles, h.Meta), right)
		},
		Verify: func(st *state.State, s *repair.Step) error {
			h := repair.HandleNamed(st, s.Guard(repair.GuardName))
			switch {
			case h == nil: // also right for a count, if its last address was released
				return usedHandle(st, s.Guard(repair.GuardName), s.Target.Name)
			case deletes:
				return repair.Replaced(s, "handle", h.Meta)
			}
			wrong, _ := st.Miscounts(h)
			if len(wrong) == 0 || countsGuard(h.Blocks) == s.Guard(repair.GuardCounts) {
				return nil
			}
			return fmt.Errorf("the count of handle %s still differs from the blocks: %s", h.ID, phrase.List(wrong))
		},
		Complete: func(b *repair.Begun) repair.Move {
			if c := b.Log.First(blocks.Handles); c != nil && deletes {
				if h := repair.HandleNamed(b.State, c.Name); h != nil && h.SoftDeleted {
					return endHandle(b, h)
				}
			}
			return repair.Move{}
		},
		Undo: func(b *repair.Begun) repair.Move {
			if deletes {
				return recreateHandle(b)
			}
			return fixedHandle(b)
		},
		Pretend: func(x *repair.Pretence, step *repair.Step) {
			if h := x.HandleByName[strings.ToLower(step.Guard(repair.GuardName))]; deletes {
				x.NoHandles[step.Guard(repair.GuardName)] = true
			} else if h != nil {
				h.Blocks = parseCounts(step.Guard(repair.GuardCounts))
			}
		},
	}
}

// reconcile proposes to delete a handle or to correct its counts.
func reconcile(p *repair.Proposals, h *blocks.Handle, deletes bool) {
	c, refs := handleConcern(p.State, h), p.State.HandleRefs(h.ID)
	if deletes != (len(refs) == 0) {
		if deletes && p.Only != "" {
			p.Refuse(c, repair.RefusedInUse, "%s recorded under it", phrase.Plural(len(refs), "address"))
		}
		return
	}
	wrong, right := p.State.Miscounts(h)
	if !deletes && len(wrong) == 0 {
		return
	}
	if bars(p, c, handles.ReconcileBar(p.State, h)) {
		return
	}
	s := repair.Step{TwoObservations: true, Because: fmt.Sprintf("no block refers to handle %s", h.ID)}
	evidence := []any{"it counts", repair.OrAbsent(state.Value(countsText(h.Blocks)))}
	pairs := []string{repair.GuardName, h.Name, repair.GuardUID, h.UID(), repair.GuardVersion, h.ResourceVersion(), repair.GuardCreated, h.Created.String()}
	if deletes {
		evidence = append(evidence, "created", h.Created)
	} else {
		s.Because = fmt.Sprintf("the count of handle %s differs from the blocks: %s", h.ID, phrase.List(wrong))
		evidence, pairs = append(evidence, "recorded are", countsText(right)), append(pairs, repair.GuardCounts, countsGuard(right))
	}
	s.Evidence, s.Guards = state.Evidences(append(evidence, "last written", h.Written)...), repair.Guards(pairs...)
	p.Add(c, s, h.Meta)
}

// recreateHandle creates the handle again if no handle has its name and this run deleted it.
func recreateHandle(b *repair.Begun) repair.Move {
	c := b.Log.First(blocks.Handles)
	if c == nil || c.Before == nil {
		return repair.Cannot(repair.SkipUnknown, "the journal does not hold the handle")
	}
	switch h := repair.HandleNamed(b.State, c.Name); {
	case h == nil && !b.Log.DeleteSent(c):
		return repair.Cannot(repair.SkipUnknown, "the handle is gone, and the journal does not show that this run deleted it: Calico may have removed it, and a restored handle would be leaked")
	case h == nil:
		return repair.ToWrite(func(ctx context.Context) error { return b.Writer.RecreateHandle(ctx, c.Before) }, "create the handle again")
	case h.UID() != c.Was().Metadata.UID:
		return repair.Nothing(repair.Already, "a new handle with this name exists")
	case h.SoftDeleted:
		return repair.Cannot(repair.SkipChanged, "it is marked deleted, and Calico removes it at its next reading")
	}
	return repair.Nothing(repair.Already, "it was not deleted after all")
}

// fixedHandle explains why a handle's old counts are not restored in the present cluster.
func fixedHandle(b *repair.Begun) repair.Move {
	c := b.Log.First(blocks.Handles)
	if c == nil {
		return repair.Cannot(repair.SkipUnknown, "the journal does not hold the handle")
	}
	h := repair.HandleNamed(b.State, c.Name)
	if h == nil || h.UID() != c.UID() {
		return repair.Nothing(repair.NotNeeded, "the handle with the written counts no longer exists")
	}
	const harm = "counts that contradict the blocks are not restored: the handle would outlive its last address, or be deleted before it"
	if wrong, _ := b.State.Miscounts(h); len(wrong) > 0 {
		return repair.Cannot(repair.SkipHarm, "its count now differs from the blocks (%s), which --leaked-handles corrects; %s", phrase.List(wrong), harm)
	}
	return repair.Cannot(repair.SkipHarm, "its count agrees with the blocks, and %s", harm)
}

// endHandle deletes a handle that the run marked.
func endHandle(b *repair.Begun, h *blocks.Handle) repair.Move {
	c := b.Log.First(blocks.Handles)
	if c == nil || h.UID() != c.Was().Metadata.UID || len(b.State.HandleRefs(h.ID)) > 0 {
		return repair.Move{}
	}
	return b.EndMark(blocks.Handles, h.Meta)
}

func handleConcern(st *state.State, h *blocks.Handle) repair.Concern {
	c := repair.Concern{Target: state.HandleSubject(h.ID)}
	for _, n := range h.Blocks {
		c.Pools = append(c.Pools, state.PoolsOf(st.PoolOf(n.CIDR))...)
	}
	for _, r := range st.HandleRefs(h.ID) {
		c.Pools = append(c.Pools, state.PoolsOf(r.Block.Pool)...)
		if attr := r.Attributes(); attr != nil {
			c.Nodes = append(c.Nodes, attr.Node)
		}
	}
	return c
}

// handleStepRefs are the objects that a handle's step depends on.
func handleStepRefs(r *repair.Refs, s *repair.Step) {
	r.One(blocks.Handles, s.Guard(repair.GuardName))
	r.Handle(s.Target.Name)
	if w := handles.SandboxPod(r.State, s.Target.Name); w != nil {
		r.Pod(w.Namespace, w.Name)
	}
}

func countsText(counts []blocks.HandleCount) (out blocks.Names) {
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%d in %s", c.Count, c.CIDR))
	}
	return out
}

// countsGuard formats counts as the value of [GuardCounts].
func countsGuard(counts []blocks.HandleCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%s=%d", c.CIDR, c.Count))
	}
	return strings.Join(out, ",")
}

// parseCounts parses the output of countsGuard; it skips parts that it cannot parse.
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
