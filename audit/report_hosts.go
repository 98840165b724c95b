package audit

import (
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// HostGapReport is a host view that could not be read, or that proves less than it should.
type HostGapReport struct {
	Node   string `json:"node,omitempty"`
	Source string `json:"source,omitempty"`
	Reason string `json:"reason"`
}

// String returns the gap in one line.
func (g HostGapReport) String() string {
	return blocks.HostGap{Node: g.Node, Source: g.Source, Reason: g.Reason}.String()
}

// addHosts adds the host views and their gaps, if any were requested.
func (r *Report) addHosts(st *state.State) {
	hosts := st.Snapshot.Hosts
	if !hosts.Asked {
		return
	}
	r.HostViews, r.HostGaps = []HostViewReport{}, []HostGapReport{}
	for i := range hosts.Views {
		v := &hosts.Views[i]
		r.HostViews = append(r.HostViews, HostViewReport{
			Node: v.Node, NoNode: !st.MayBeNode(v.Node), TakenAt: Time{v.TakenAt}, Source: v.Source, Agent: v.RulesKnown, Namespaces: len(v.Namespaces), Routes: len(v.Routes),
		})
	}
	for _, g := range st.Views.Gaps() {
		r.HostGaps = append(r.HostGaps, HostGapReport{g.Node, g.Source, g.Reason})
	}
}
