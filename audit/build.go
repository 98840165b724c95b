package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// NewReportCluster describes the cluster of a state and how it was read.
func NewReportCluster(st *state.State) ReportCluster {
	c := st.Cluster
	return ReportCluster{
		GUID: c.GUID, Datastore: c.Datastore, APIGroup: c.APIGroup, APIGroupReason: c.APIGroupReason,
		CalicoVersion: c.CalicoVersion, TakenAt: Time{c.TakenAt}, Assumes: c.Assumes,
	}
}

// NewReport builds the report of an audit.
func NewReport(st *state.State, r *Result) *Report {
	for i := range r.Findings { // a remedy's plan may read resources that its check does not
		if f := &r.Findings[i]; len(f.Remedies) > 0 {
			f.Remedies = remedies.Of(st).Now(f.Remedies)
			f.Fix = FixOf(f.Remedies)
		}
	}
	rep := &Report{
		APIVersion: APIVersion, Kind: ReportKind, Cluster: NewReportCluster(st),
		Complete:      st.Complete() && len(r.Unread) == 0,
		Gaps:          orEmpty(slices.Concat(st.Gaps, r.Unread)),
		SkippedChecks: orEmpty(r.Skipped),
		Findings:      orEmpty(r.Findings),
		Summary: Summary{
			Nodes: len(st.Nodes), Pools: len(st.Pools), Blocks: len(st.IPBlocks),
			Affinities: len(st.Affinities), Handles: len(st.Handles),
		},
		Pools: make([]PoolReport, 0, len(st.Pools)), Nodes: make([]NodeReport, 0, len(st.NodeStates)),
		Blocks: blockReports(st), WhereaboutsPools: whereaboutsReports(st), Diagnoses: diagnose(st, r.Findings),
	}
	for _, b := range st.IPBlocks {
		rep.Summary.Allocations += b.Used
	}
	for _, p := range st.Pools {
		placed, unplaced := st.UnreadInPool(p)
		rep.Pools = append(rep.Pools, PoolReport{
			UnreadableBlocks: placed, UnplacedBlocks: unplaced,
			Name: p.Name, CIDR: p.CIDR.String(), BlockSize: p.BlockSize, Disabled: p.Disabled, Addresses: p.Addrs,
			Blocks:       PoolBlocksReport{Slots: p.Slots, Releasable: p.Releasable, Needed: p.Needed},
			Reservations: reservationsIn(st, p),
		})
	}
	for _, h := range st.NodeStates {
		rep.Nodes = append(rep.Nodes, nodeReport(h, st))
	}
	rep.addHosts(st)
	rep.recount()
	return rep
}

func nodeReport(h *state.NodeState, st *state.State) NodeReport {
	n := NodeReport{Name: h.Name, Blocks: []string{}, Borrowed: len(h.Borrowed), Lent: len(h.Lent), UnreadableBlocks: st.UnreadOfNode(h.Name)}
	if _, unread := st.Missing(blocks.Nodes); h.Node == nil && !unread {
		n.Missing = true
	}
	for _, b := range h.Blocks {
		n.Blocks = append(n.Blocks, b.CIDR.String())
		n.Addresses += b.Used
		if b.Used == 0 {
			n.EmptyBlocks++
		}
	}
	n.BorrowedFrom = Names(h.Borrowed, func(b *state.Borrow) string { return b.Owner })
	n.LentTo = Names(h.Lent, func(b *state.Borrow) string { return b.User })
	return n
}

// AtOrAbove reports whether a finding is at least as severe as s.
func (r *Report) AtOrAbove(s state.Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity >= s })
}

// Filter keeps the pools, nodes and findings that concern one of the given pools and one of
// the given nodes; an empty list keeps all. Findings about the whole cluster stay. All
// blocks of a kept pool stay, because a pool without some of its blocks would look free.
// Filter updates the counts of findings, but not those of objects.
func (r *Report) Filter(pools, nodes []string) {
	if len(pools) > 0 {
		r.filterBlocks(pools)
		r.Pools = slices.DeleteFunc(r.Pools, func(p PoolReport) bool { return !slices.Contains(pools, p.Name) })
		r.WhereaboutsPools = slices.DeleteFunc(r.WhereaboutsPools, func(p WhereaboutsPoolReport) bool { return !slices.Contains(pools, p.Name) })
	}
	if len(nodes) > 0 {
		r.Nodes = slices.DeleteFunc(r.Nodes, func(n NodeReport) bool { return !slices.Contains(nodes, n.Name) })
		r.WhereaboutsPools = slices.DeleteFunc(r.WhereaboutsPools, func(p WhereaboutsPoolReport) bool { return p.Node != "" && !slices.Contains(nodes, p.Node) })
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool {
		return len(pools) > 0 && !f.ConcernsPool(pools) || len(nodes) > 0 && !f.ConcernsNode(nodes)
	})
	r.recount()
}

func (f *Finding) wholeCluster() bool {
	return f.Subject.Kind == state.KindConfig || f.Subject.Kind == state.KindCluster
}

// ConcernsPool reports whether a finding is about one of the pools, or involves one.
func (f *Finding) ConcernsPool(pools []string) bool {
	return f.wholeCluster() || f.Subject.Kind == state.KindPool && slices.Contains(pools, f.Subject.Name) ||
		slices.ContainsFunc(f.Pools, func(p string) bool { return slices.Contains(pools, p) })
}

// ConcernsNode reports whether a finding is about one of the nodes, or involves one.
func (f *Finding) ConcernsNode(nodes []string) bool {
	return f.wholeCluster() || slices.Contains(nodes, f.Subject.Node) ||
		slices.ContainsFunc(f.Nodes, func(n string) bool { return slices.Contains(nodes, n) })
}
