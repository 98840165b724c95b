package audit

import (
	"encoding/json"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// APIVersion and ReportKind identify a report.
const (
	APIVersion = blocks.APIVersion
	ReportKind = "AuditReport"
)

// Report is the result of an audit. Every output renders this value. Everything
// in it is sorted: the same state gives the same bytes, cluster.takenAt aside.
type Report struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Cluster    ReportCluster `json:"cluster"`
	// Complete is false if something that an audit reads could not be read.
	Complete      bool         `json:"complete"`
	Gaps          []blocks.Gap `json:"gaps"`
	SkippedChecks []Skipped    `json:"skippedChecks"`
	// Scope is what the report was narrowed to; nil for a whole one.
	Scope   *Scope       `json:"scope,omitempty"`
	Summary Summary      `json:"summary"`
	Pools   []PoolReport `json:"pools"`
	Nodes   []NodeReport `json:"nodes"`
	// Blocks are all blocks, by CIDR. With the pools they are what the block map
	// draws.
	Blocks []BlockReport `json:"blocks"`
	// WhereaboutsPools are the pools of secondary networks, by namespace and name; nil
	// where there are none.
	WhereaboutsPools []WhereaboutsPoolReport `json:"whereaboutsPools,omitempty"`
	// HostViews are the host views that verdicts could rest on, HostGaps those that
	// could not be had or prove nothing. Nil where none were asked for. A gap
	// among them does not make the report incomplete.
	HostViews []HostViewReport `json:"hostViews,omitzero"`
	HostGaps  []HostGapReport  `json:"hostGaps,omitzero"`
	// Diagnoses group the findings that one cause explains, the gravest first.
	Diagnoses []Diagnosis `json:"diagnoses"`
	Findings  []Finding   `json:"findings"`
	// Muted are the rules that findings were muted by, with those findings, which
	// are not among the others and do not count.
	Muted []Muted `json:"muted,omitempty"`

	// Usage says what the single addresses are in use for; nil where no output asked
	// for it. It is not part of the report as data: in a large cluster it is many
	// times the rest.
	Usage Usage `json:"-"`
}

// Scope says what a report was narrowed to. What lies outside was not evaluated, or is
// not shown.
type Scope struct {
	// Checks are the IDs of the checks that ran; empty for all.
	Checks []string `json:"checks,omitempty"`
	// Pools and Nodes are those that findings concern; empty for all.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// ReportCluster says which cluster was audited and how it was read.
type ReportCluster struct {
	GUID           string `json:"guid"`
	Datastore      string `json:"datastore"`
	APIGroup       string `json:"apiGroup"`
	APIGroupReason string `json:"apiGroupReason,omitempty"`
	CalicoVersion  string `json:"calicoVersion"`
	// TakenAt is the time that all ages are counted from.
	TakenAt Time `json:"takenAt"`
}

// Time is a time in a report: RFC 3339 in UTC, or "" when unknown.
type Time struct{ time.Time }

// MarshalJSON writes the time in RFC 3339, or "" for the zero time.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(phrase.Time(t.Time)) }

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Time) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil || s == "" {
		return err
	}
	parsed, err := time.Parse(time.RFC3339Nano, s)
	t.Time = parsed
	return err
}

// FindingCounts counts findings by severity.
type FindingCounts struct {
	Critical int `json:"critical"`
	Error    int `json:"error"`
	Warning  int `json:"warning"`
	Info     int `json:"info"`
	// Muted counts the findings that rules muted, which are in no other count.
	Muted int `json:"muted,omitempty"`
}

// Summary counts findings by severity, and objects.
type Summary struct {
	FindingCounts
	Nodes       int `json:"nodes"`
	Pools       int `json:"pools"`
	Blocks      int `json:"blocks"`
	Affinities  int `json:"affinities"`
	Allocations int `json:"allocations"`
	Handles     int `json:"handles"`
}

// Of returns where the findings of a severity are counted; for what is no severity,
// a count that nothing shows.
func (c *FindingCounts) Of(severity state.Severity) *int {
	switch severity {
	case state.Critical:
		return &c.Critical
	case state.Error:
		return &c.Error
	case state.Warning:
		return &c.Warning
	case state.Info:
		return &c.Info
	}
	return new(int)
}

// PoolReport is a pool with its numbers.
type PoolReport struct {
	Name      string           `json:"name"`
	CIDR      string           `json:"cidr"`
	BlockSize int              `json:"blockSize"`
	Disabled  bool             `json:"disabled"`
	Addresses blocks.Addrs     `json:"addresses"`
	Blocks    PoolBlocksReport `json:"blocks"`
	// Reservations are the parts of the pool that IPReservations cover.
	Reservations []string `json:"reservations,omitempty"`
	// UnreadableBlocks counts the blocks that could not be decoded and lie in the pool, and
	// UnplacedBlocks those that lie in some pool: their CIDR could not be decoded either.
	// Their addresses are in no number of the pool.
	UnreadableBlocks int `json:"unreadableBlocks,omitempty"`
	UnplacedBlocks   int `json:"unplacedBlocks,omitempty"`
	// Runway says when blocks and addresses run out; nil where no past was read.
	Runway *runway.Pool `json:"runway,omitempty"`
}

// PoolBlocksReport counts a pool's blocks. Claimed, Free and Reserved are
// disjoint and make up Capacity; Releasable is a part of Claimed.
type PoolBlocksReport struct {
	blocks.Slots
	// Releasable is how many slots would become free if every empty block that
	// may be released were.
	Releasable blocks.Count `json:"releasable"`
	// Needed is how many blocks the nodes that the pool selects will need: the
	// sum of max(1, ⌈allocatable pods / block size⌉). 0 for pools that do not
	// serve workloads by themselves.
	Needed blocks.Count `json:"needed"`
}

// NodeReport is a host with what it holds. Hosts that own blocks but are no
// node are listed, too.
type NodeReport struct {
	Name string `json:"name"`
	// Missing is true for a host that owns blocks and no longer exists.
	Missing bool `json:"missing,omitempty"`
	// Blocks are the CIDRs of the blocks that the node owns.
	Blocks []string `json:"blocks"`
	// EmptyBlocks counts those of them without any allocation.
	EmptyBlocks int `json:"emptyBlocks"`
	// Addresses counts the addresses allocated in the node's own blocks.
	Addresses int `json:"addresses"`
	// BorrowedFrom names the nodes in whose blocks this node uses addresses, and
	// Borrowed counts those addresses.
	BorrowedFrom []string `json:"borrowedFrom"`
	Borrowed     int      `json:"borrowed"`
	// LentTo names the nodes that use addresses of this node's blocks, and Lent
	// counts those addresses.
	LentTo []string `json:"lentTo"`
	Lent   int      `json:"lent"`
	// UnreadableBlocks counts the blocks that could not be decoded and that the node owns or
	// may own. They are in no number of the node.
	UnreadableBlocks int `json:"unreadableBlocks,omitempty"`
}
