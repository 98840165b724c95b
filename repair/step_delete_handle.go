package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// deleteHandle deletes a handle that no block refers to. It does no harm by being
// there, so that the least doubt keeps it.
var deleteHandle = &stepKind{
	kind:  DeleteHandle,
	flag:  "--leaked-handles",
	asked: func(r Request) bool { return r.LeakedHandles },
	needs: []blocks.Resource{blocks.Handles, blocks.Blocks, blocks.Pods},
	exact: []string{GuardName, GuardUID, GuardVersion, GuardCreated},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		doubt := newHandleDoubt(p.st)
		for i := range p.st.Handles {
			h := &p.st.Handles[i]
			if !p.wants(audit.HandleSubject(h.ID)) || h.SoftDeleted {
				continue
			}
			if n := len(p.st.HandleRefs(h.ID)); n > 0 {
				if p.only != "" {
					p.refuse(handleConcern(p.st, h), RefusedInUse, "%s recorded under it", audit.Plural(n, "address"))
				}
				continue
			}
			p.proposeHandle(h, doubt)
		}
	},
	refs: handleStepRefs,
	do: func(ctx context.Context, w Writer, st *audit.State, s *Step) error {
		h := handleNamed(st, s.Guard(GuardName))
		if h == nil {
			return errGone(s)
		}
		return w.DeleteHandle(ctx, pin(blocks.Handles, h.Meta))
	},
	verify: func(st *audit.State, s *Step) error {
		if h := handleNamed(st, s.Guard(GuardName)); h != nil {
			return replaced(s, "handle", h.Meta)
		}
		return usedHandle(st, s.Guard(GuardName), s.Target.Name)
	},
	pretend: func(x *pretence, step *Step) { x.noHandles[step.Guard(GuardName)] = true },
}

func (p *proposals) proposeHandle(h *blocks.Handle, doubt *handleDoubt) {
	c := handleConcern(p.st, h)
	code, why := doubt.about(h)
	switch {
	case code != "":
		p.refuse(c, code, "%s", why)
		return
	case !p.st.OldEnough(h.Meta):
		p.refuse(c, RefusedYoung, "it was written less than %s ago, at %s: a handle is written before the address that it counts%s", p.st.Grace, audit.FormatTime(lastWrite(h.Meta)), oldFrom(p.st, lastWrite(h.Meta)))
		return
	case doubt.sandboxes[sandboxOf(h.ID)] != nil:
		p.refuse(c, RefusedInUse, "pod %s names its sandbox, and may be about to use it", doubt.sandboxes[sandboxOf(h.ID)].FullName())
		return
	}
	p.add(c, Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("no block refers to handle %s", h.ID),
		Evidence: audit.Evidences("it counts", orAbsent(countsText(h.Blocks)), "created", audit.FormatTime(h.Created),
			"last written", audit.FormatTime(h.Written)),
		Guards: guards(GuardName, h.Name, GuardUID, h.UID, GuardVersion, h.ResourceVersion, GuardCreated, audit.FormatTime(h.Created)),
	}, h.Meta)
}

func handleConcern(st *audit.State, h *blocks.Handle) concern {
	c := concern{target: audit.HandleSubject(h.ID)}
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
func handleStepRefs(st *audit.State, s *Step) []blocks.Ref {
	r := newRefs(st)
	r.one(blocks.Handles, s.Guard(GuardName))
	r.handle(s.Target.Name)
	if w := sandboxes(st)[sandboxOf(s.Target.Name)]; w != nil {
		r.pod(w.Namespace, w.Name)
	}
	return r.out
}

func countsText(counts []blocks.HandleCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%d in %s", c.Count, c.CIDR))
	}
	return audit.List(out)
}
