package repair

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// waiting returns the empty blocks of a pool that nothing but their age keeps from
// being released, the one that is due first at the head. A node that is there keeps
// one of its blocks.
func waiting(st *state.State, pool *state.Pool) []*state.Block {
	var out []*state.Block
	for _, h := range st.NodeStates {
		var young []*state.Block
		keeps := h.Node == nil
		for _, b := range h.Blocks {
			switch {
			case b.Pool != pool:
			case b.Used == 0 && b.Reclaimability.Code == state.RetainYoung && !b.Reclaimability.EmptySince.IsZero():
				young = append(young, b)
			case b.Usable():
				keeps = true
			}
		}
		if len(young) > 0 && !keeps {
			young = young[1:]
		}
		out = append(out, young...)
	}
	slices.SortStableFunc(out, func(a, b *state.Block) int { return a.Reclaimability.EmptySince.Compare(b.Reclaimability.EmptySince) })
	return out
}

// wait says which empty blocks need only time until they make room, and takes what
// they make room for off the list of what is lacking: nothing has to be emptied for
// that.
func (m *manuals) wait() {
	if !m.plan.Request.EmptyBlocks {
		return
	}
	room := map[*state.Pool]blocks.Count{}
	var items []Manual
	for _, s := range m.short {
		soon := waiting(m.after, s.pool)
		soon = soon[:min(len(soon), len(s.nodes))]
		if len(soon) == 0 || !m.concerns([]string{s.pool.Name}, nil) {
			continue
		}
		room[s.pool] = blocks.CountOf(len(soon))
		for _, b := range soon {
			items = append(items, Manual{
				Target: state.BlockSubject(b), Action: "make a new plan after " + state.FormatTime(b.Reclaimability.EmptySince.Add(m.st.Grace)),
				Because: fmt.Sprintf("it has to stay empty for %s until it is released, and makes room then: %s", m.plan.Grace, s.text()),
				Command: "calico-audit repair --empty-blocks",
			})
		}
	}
	m.short = shortage(m.after, room)
	m.group(items...)
}
