package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// APIVersion and ReportKind identify a report.
const (
	APIVersion = blocks.APIVersion
	ReportKind = "AuditReport"
)

// Report is the result of an audit. Every output renders this value. All its lists are
// sorted, so the same state gives the same bytes, except for cluster.takenAt.
type Report struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Cluster    ReportCluster `json:"cluster"`
	// Complete is false if a resource could not be read.
	Complete      bool         `json:"complete"`
	Gaps          []blocks.Gap `json:"gaps"`
	SkippedChecks []Skipped    `json:"skippedChecks"`
	// Scope holds the filters of the report; nil for a whole report.
	Scope   *Scope       `json:"scope,omitempty"`
	Summary Summary      `json:"summary"`
	Pools   []PoolReport `json:"pools"`
	Nodes   []NodeReport `json:"nodes"`
	// Blocks are all blocks, by CIDR. The block map is drawn from them and the pools.
	Blocks []BlockReport `json:"blocks"`
	// WhereaboutsPools are the pools of secondary networks, by namespace and name; nil if
	// there are none.
	WhereaboutsPools []WhereaboutsPoolReport `json:"whereaboutsPools,omitempty"`
	// HostViews are the usable host views. HostGaps are views that could not be read, or that prove
	// nothing; they do not make the report incomplete. Both are nil if no host views were
	// requested.
	HostViews []HostViewReport `json:"hostViews,omitzero"`
	HostGaps  []HostGapReport  `json:"hostGaps,omitzero"`
	// Diagnoses group findings with the same cause, the most severe first.
	Diagnoses []Diagnosis `json:"diagnoses"`
	Findings  []Finding   `json:"findings"`
	// Muted lists the rules and baselines with the findings that they muted. Muted findings
	// are not in Findings and do not count.
	Muted []Muted `json:"muted,omitempty"`

	// Usage describes the use of single addresses; nil if the output does not need it. The report's
	// JSON omits it, because in a large cluster it would be many times larger than the rest.
	Usage Usage `json:"-"`
}

// Scope holds the filters of a report. Findings outside the filters were not evaluated, or
// are not shown.
type Scope struct {
	// Checks are the IDs of the checks that ran; empty for all.
	Checks []string `json:"checks,omitempty"`
	// Pools and Nodes filter the findings; empty for all.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// ReportCluster identifies the audited cluster and how it was read.
type ReportCluster struct {
	GUID           string `json:"guid"`
	Datastore      string `json:"datastore"`
	APIGroup       string `json:"apiGroup"`
	APIGroupReason string `json:"apiGroupReason,omitempty"`
	CalicoVersion  string `json:"calicoVersion"`
	// TakenAt is the reference time of all ages.
	TakenAt Time `json:"takenAt"`
	// Assumes are assumptions about files that do not state how many objects the cluster has.
	Assumes []string `json:"assumes,omitempty"`
}

// Summary counts findings by severity, and objects by kind.
type Summary struct {
	FindingCounts
	Nodes       int `json:"nodes"`
	Pools       int `json:"pools"`
	Blocks      int `json:"blocks"`
	Affinities  int `json:"affinities"`
	Allocations int `json:"allocations"`
	Handles     int `json:"handles"`
}

// PoolReport is a pool with its counts.
type PoolReport struct {
	Name      string           `json:"name"`
	CIDR      string           `json:"cidr"`
	BlockSize int              `json:"blockSize"`
	Disabled  bool             `json:"disabled"`
	Addresses blocks.Addrs     `json:"addresses"`
	Blocks    PoolBlocksReport `json:"blocks"`
	// Reservations are the parts of the pool that IPReservations cover.
	Reservations []string `json:"reservations,omitempty"`
	// UnreadableBlocks counts blocks of this pool that could not be decoded. UnplacedBlocks
	// counts undecodable blocks without a readable CIDR, which may lie in any pool. No
	// other number of the pool includes their addresses.
	UnreadableBlocks int `json:"unreadableBlocks,omitempty"`
	UnplacedBlocks   int `json:"unplacedBlocks,omitempty"`
	// Runway estimates when blocks and addresses run out; nil without past samples.
	Runway *runway.Pool `json:"runway,omitempty"`
}

// PoolBlocksReport counts a pool's blocks. Claimed, Free and Reserved are disjoint and add
// up to Capacity. Releasable is a part of Claimed.
type PoolBlocksReport struct {
	blocks.Slots
	// Releasable counts the slots that become free once every releasable block is
	// released.
	Releasable blocks.Count `json:"releasable"`
	// Needed is how many blocks the nodes that the pool selects will need: the sum of
	// max(1, ⌈allocatable pods / block size⌉). It is 0 for pools that do not serve
	// workloads automatically.
	Needed blocks.Count `json:"needed"`
}

// NodeReport is a node with its blocks and addresses. Deleted nodes that still own blocks
// are included.
type NodeReport struct {
	Name string `json:"name"`
	// Missing is true if the node no longer exists but still owns blocks.
	Missing bool `json:"missing,omitempty"`
	// Blocks are the CIDRs of the node's blocks.
	Blocks []string `json:"blocks"`
	// EmptyBlocks counts the node's blocks without allocations.
	EmptyBlocks int `json:"emptyBlocks"`
	// Addresses counts the allocated addresses in the node's own blocks.
	Addresses int `json:"addresses"`
	// BorrowedFrom names the owners of the addresses that this node borrows. Borrowed
	// counts those addresses.
	BorrowedFrom []string `json:"borrowedFrom"`
	Borrowed     int      `json:"borrowed"`
	// LentTo names the nodes that borrow addresses from this node's blocks. Lent counts
	// those addresses.
	LentTo []string `json:"lentTo"`
	Lent   int      `json:"lent"`
	// UnreadableBlocks counts blocks that could not be decoded and that the node owns or
	// may own. No other number of the node includes them.
	UnreadableBlocks int `json:"unreadableBlocks,omitempty"`
}

// BlockReport is a block with its counts. A healthy block has an owner and no conditions.
type BlockReport struct {
	CIDR string `json:"cidr"`
	// Pool is the most specific pool that contains the block, else one that overlaps it;
	// empty if there is neither.
	Pool string `json:"pool"`
	// Owner is the block's owner as Calico writes it: "host:NODE" or
	// "virtual:load-balancer"; empty if it has none.
	Owner string `json:"owner"`
	// InUse counts the allocated addresses, including those in their cooldown and those that
	// Windows nodes reserve. Cooling counts only those in their cooldown.
	InUse   int `json:"inUse"`
	Cooling int `json:"cooling,omitempty"`
	// Available counts the addresses that can be assigned.
	Available int `json:"available"`
	// LentTo names the nodes that borrow addresses of the block. Lent counts those
	// addresses.
	LentTo []string `json:"lentTo,omitempty"`
	Lent   int      `json:"lent,omitempty"`
	// Conditions are the problems of the block, the worst first.
	Conditions []Condition `json:"conditions,omitempty"`
	// Releasable is true for an empty block that may be released now.
	Releasable bool `json:"releasable,omitempty"`
}

// HostViewReport describes a host view of the audit.
type HostViewReport struct {
	Node    string `json:"node"`
	TakenAt Time   `json:"takenAt"`
	// Source is the file or pod that the view came from.
	Source string `json:"source"`
	// NoNode is true if the cluster has no node of that name. Only the view's addresses in
	// use count then.
	NoNode bool `json:"noNode,omitempty"`
	// Agent is true for a view from an agent, false for a listing of routes.
	Agent bool `json:"agent"`
	// Namespaces and Routes count the usable parts of the view.
	Namespaces int `json:"namespaces"`
	Routes     int `json:"routes"`
}

// WithCommands returns a copy of the report with its commands rewritten by write.
func (r *Report) WithCommands(write func(string) string) *Report {
	out := *r
	out.Diagnoses = DiagnosesWith(r.Diagnoses, write)
	out.Findings = FindingsWith(r.Findings, write)
	out.Muted = slices.Clone(r.Muted)
	for i := range out.Muted {
		out.Muted[i].Findings = FindingsWith(out.Muted[i].Findings, write)
	}
	return &out
}

// recount updates the counts of findings. It also removes dropped findings from the
// diagnoses, and diagnoses without findings from the report.
func (r *Report) recount() {
	severities := map[string]state.Severity{}
	r.Summary.FindingCounts = FindingCounts{Muted: r.Summary.Muted}
	for i := range r.Findings {
		f := &r.Findings[i]
		*r.Summary.Of(f.Severity)++
		severities[f.Fingerprint] = f.Severity
	}
	left := []Diagnosis{}
	for _, d := range r.Diagnoses {
		d.Severity = 0
		d.Findings = slices.DeleteFunc(slices.Clone(d.Findings), func(f string) bool { return severities[f] == 0 })
		for _, f := range d.Findings {
			d.Severity = max(d.Severity, severities[f])
		}
		if len(d.Findings) > 0 {
			left = append(left, d)
		}
	}
	sortDiagnoses(left)
	r.Diagnoses = left
}

// DiagnosisOf returns the diagnosis of a finding; nil if it has none.
func (r *Report) DiagnosisOf(f *Finding) *Diagnosis {
	i := slices.IndexFunc(r.Diagnoses, func(d Diagnosis) bool { return slices.Contains(d.Findings, f.Fingerprint) })
	if i < 0 {
		return nil
	}
	return &r.Diagnoses[i]
}

// Mute moves the muted findings of a report to its Muted list, and updates the counts.
func (r *Report) Mute(m *Mutes) {
	var muted []Muted
	r.Findings, muted = m.Apply(r.Findings, r.Cluster.TakenAt.Time)
	r.Muted = append(r.Muted, muted...)
	r.Summary.Muted = 0
	for _, x := range r.Muted {
		r.Summary.Muted += x.Count
	}
	r.recount()
}
