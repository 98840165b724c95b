package planner

import (
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// manual lists the operator's own steps: manual remedies for nodes that cannot get the blocks they
// need, for borrowing tunnels, and for processes that use ownerless addresses. It never includes
// cordoning nodes or ending pods: --consolidate and --rehome do that and watch the effects.
func manual(st, after *state.State, p *repair.Plan) []repair.Manual {
	m := &manuals{plan: p, st: remedies.Of(st)}
	if p.Request.EmptyBlocks || p.Strict != nil {
		for _, root := range remedies.Of(after).Unserved() {
			if m.concerns(root.Pools, root.Nodes) {
				m.add(root.Subject, root.Message(0), root.Remedies())
			}
		}
		for _, c := range remedies.Of(after).Contests() {
			if m.concerns([]string{c.Pool.Name}, c.Nodes) && len(remedies.Of(after).Unserved()) == 0 {
				m.add(state.PoolSubject(c.Pool), c.String(), c.Remedies)
			}
		}
		m.order++
		for _, b := range st.Borrows {
			if b.Tunnel && m.concerns(state.PoolsOf(b.Block.Pool), []string{b.User, b.Owner}) {
				m.add(state.IPSubject(b.Addr, b.User), "the tunnel of "+b.User+" uses "+b.Addr.String()+" of block "+b.Block.CIDR.String()+", which belongs to "+b.Owner, remedies.Of(st).BorrowRemedies(b))
			}
		}
		m.order++
	}
	m.afterRestore(st)
	for _, r := range p.Refused {
		if r.Code == repair.RefusedHostView && (r.Kind == repair.ReleaseIP || r.Kind == repair.ReleaseBlock) {
			m.add(r.Target, r.Reason, []remedies.Remedy{remedies.EndUse(nil)})
		}
	}
	return m.numbered()
}

// manuals collects the manual steps, group by group.
type manuals struct {
	plan  *repair.Plan
	st    *remedies.Remedies
	order int
	out   []repair.Manual
}

// add appends the manual remedies among some remedies.
func (m *manuals) add(target state.Subject, because string, ways []remedies.Remedy) {
	for _, r := range ways {
		if !r.Manual {
			continue
		}
		r = m.st.AllowingNewer(r)
		x := repair.Manual{Order: m.order, Target: target, Action: r.Title, Because: because, Risk: r.Risk}
		if len(r.Commands) > 0 {
			x.Command, x.Then = r.Commands[0], r.Commands[1:]
		}
		m.out = append(m.out, x)
	}
}

// numbered renumbers the groups that are present, from 1.
func (m *manuals) numbered() []repair.Manual {
	order, last := 0, -1
	for i := range m.out {
		x := &m.out[i]
		if x.Order != last {
			order, last = order+1, x.Order
		}
		x.Order = order
	}
	return m.out
}

// concerns reports whether the request covers one of these pools and one of these nodes.
func (m *manuals) concerns(pools, nodes []string) bool {
	return repair.Meet(m.plan.Request.Pools, pools) && repair.Meet(m.plan.Request.Nodes, nodes)
}
