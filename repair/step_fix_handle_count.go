package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// fixHandleCount writes the counts that the blocks record into a handle. One that
// counts too much would outlive its last address.
var fixHandleCount = &stepKind{
	kind:  FixHandleCount,
	flag:  "--leaked-handles",
	asked: func(r Request) bool { return r.LeakedHandles },
	needs: []blocks.Resource{blocks.Handles, blocks.Blocks, blocks.Pods},
	exact: []string{GuardName, GuardUID, GuardVersion, GuardCreated, GuardCounts},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		doubt := newHandleDoubt(p.st)
		for i := range p.st.Handles {
			h := &p.st.Handles[i]
			refs := p.st.HandleRefs(h.ID)
			if h.SoftDeleted || len(refs) == 0 || !p.wants(audit.HandleSubject(h.ID)) {
				continue
			}
			if wrong, right := p.st.Miscounts(h); len(wrong) > 0 {
				p.proposeCounts(h, refs, wrong, right, doubt)
			}
		}
	},
	refs: handleStepRefs,
	do: func(ctx context.Context, w Writer, st *audit.State, s *Step) error {
		h := handleNamed(st, s.Guard(GuardName))
		if h == nil {
			return errGone(s)
		}
		_, right := st.Miscounts(h)
		return w.SetHandleCounts(ctx, pin(blocks.Handles, h.Meta), right)
	},
	verify: func(st *audit.State, s *Step) error {
		h := handleNamed(st, s.Guard(GuardName))
		if h == nil {
			return usedHandle(st, s.Guard(GuardName), s.Target.Name) // unless its last address was given back
		}
		wrong, right := st.Miscounts(h)
		if len(wrong) == 0 || countsGuard(h.Blocks) == s.Guard(GuardCounts) || sameCounts(h.Blocks, right) {
			return nil
		}
		return fmt.Errorf("handle %s still counts otherwise than the blocks: %s", h.ID, audit.List(wrong))
	},
	pretend: func(x *pretence, step *Step) {
		if h := x.handles[step.Guard(GuardName)]; h != nil {
			h.Blocks = parseCounts(step.Guard(GuardCounts))
		}
	},
}

func (p *proposals) proposeCounts(h *blocks.Handle, refs []audit.AllocationRef, wrong []string, right []blocks.HandleCount, doubt *handleDoubt) {
	c := handleConcern(p.st, h)
	code, why := doubt.about(h)
	if code == "" {
		code, why = p.inFlight(h, refs, doubt)
	}
	if code != "" {
		p.refuse(c, code, "%s", why)
		return
	}
	p.add(c, Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("handle %s counts otherwise than the blocks: %s", h.ID, audit.List(wrong)),
		Evidence: audit.Evidences("it counts", orAbsent(countsText(h.Blocks)), "recorded are", countsText(right),
			"last written", audit.FormatTime(h.Written)),
		Guards: guards(GuardName, h.Name, GuardUID, h.UID, GuardVersion, h.ResourceVersion, GuardCreated, audit.FormatTime(h.Created),
			GuardCounts, countsGuard(right)),
	}, h.Meta)
}

// inFlight says whether the handle's pod is starting or ending, or anything about
// it is young: handle and block are written one after the other.
func (p *proposals) inFlight(h *blocks.Handle, refs []audit.AllocationRef, doubt *handleDoubt) (RefusalCode, string) {
	st := p.st
	if !st.OldEnough(h.Meta) {
		return RefusedYoung, fmt.Sprintf("it was written less than %s ago, at %s", st.Grace, audit.FormatTime(lastWrite(h.Meta))) + oldFrom(st, lastWrite(h.Meta))
	}
	if w := doubt.sandboxes[sandboxOf(h.ID)]; w != nil && moving(w) {
		return RefusedInUse, "pod " + w.FullName() + " is starting or ending"
	}
	for _, r := range refs {
		attr := r.Attributes()
		if at := audit.AssignedAt(r); !st.PastGrace(at) {
			return RefusedYoung, fmt.Sprintf("%s was assigned under it less than %s ago, at %s", r.Addr(), st.Grace, audit.FormatTime(at)) + oldFrom(st, at)
		}
		if w := st.Pod(attr.Namespace, attr.Pod); w != nil && moving(w) {
			return RefusedInUse, "pod " + w.FullName() + " is starting or ending"
		}
	}
	return "", ""
}

// moving tells whether a pod's network may be in the making or in the taking down.
func moving(w *blocks.Workload) bool { return w.Phase == "Pending" || !w.Deleting.IsZero() }
