package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Exporter audits a watched cluster after each change, and serves the last audit. HTTP
// requests never reach the cluster.
type Exporter struct {
	ExporterOptions

	current  atomic.Pointer[Audit]
	audits   atomic.Uint64
	errors   atomic.Uint64
	readings atomic.Uint64
	// pages limits the pages that are rendered at the same time.
	pages chan struct{}
}

// Audit is the result of one audit. It is never changed.
type Audit struct {
	// Report is the report as "calico-audit report" would print it, with muted findings
	// apart.
	Report *audit.Report

	// seen is the local time when the state's TakenAt was first seen.
	seen time.Time
	// samples are the metrics that change only with an audit.
	samples samples
	// usage computes the report's Usage on first use.
	usage func() audit.Usage
}

// checkRun records the run of one check.
type checkRun struct {
	id        string
	took      time.Duration
	evaluated bool
}

// staleFor returns how long ago the state was last known to be current if that exceeds MaxAge, else
// 0.
func (e *Exporter) staleFor(a *Audit) time.Duration {
	if age := time.Since(a.seen); age > e.MaxAge {
		return age
	}
	return 0
}

// reportOf returns the report of an audit, marked as incomplete if the state has become too
// old.
func (e *Exporter) reportOf(a *Audit) *audit.Report {
	age := e.staleFor(a)
	if age == 0 {
		return a.Report
	}
	old := *a.Report
	old.Complete = false
	old.Gaps = append(slices.Clone(old.Gaps), blocks.Gap{Resource: staleResource, Reason: staleReason(a, age)})
	return &old
}
