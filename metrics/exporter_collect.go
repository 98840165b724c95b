package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// samples returns all samples. a is the last audit; nil before the first.
func (e *Exporter) samples(a *Audit) (s samples) {
	s.add(buildInfo, 1, e.Build.Version, e.Build.Revision, e.Build.GoVersion)
	s.add(auditsTotal, float64(e.audits.Load()))
	s.add(auditErrorsTotal, float64(e.errors.Load()))
	s.add(secondReadingTotal, float64(e.readings.Load()))
	restarts := e.Source.Restarts()
	for _, r := range blocks.Resources {
		s.add(watchRestartsTotal, float64(restarts[r]), string(r))
	}
	if e.Agents != nil {
		c := e.Agents()
		s.add(viewsAsked, float64(c.Asked))
		s.add(viewsFailed, float64(c.Failed))
		s.add(viewsFresh, float64(c.Views))
		s.add(viewsLack, float64(c.Missing))
		if !c.Oldest.IsZero() {
			s.add(viewsOldest, float64(c.Oldest.UnixMilli())/1000)
		}
	}
	if a == nil {
		s.add(snapshotComplete, 0)
		return s
	}
	rep := e.reportOf(a)
	if at := rep.Cluster.TakenAt; !at.IsZero() {
		s.add(snapshotTime, float64(at.UnixMilli())/1000)
	}
	s.add(snapshotComplete, number(rep.Complete))
	s.add(snapshotGaps, float64(len(blocks.Untolerated(rep.Gaps))))
	return append(s, a.samples...)
}

// addFindings adds the counts of findings, and the results of checks.
func (s *samples) addFindings(r *audit.Report, checks []checkRun, unsure int) {
	type kind struct {
		check    string
		severity state.Severity
		pool     string
	}
	counts, seen := map[kind]int{}, map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		pool := cmp.Or(f.Pool(), noPool)
		counts[kind{f.Check, f.Severity, pool}]++
		seen[pool] = true
	}
	pools := slices.Sorted(maps.Keys(seen))
	for _, c := range checks {
		s.add(checkSuccess, number(c.evaluated), c.id)
		s.add(checkTook, c.took.Seconds(), c.id)
		if !c.evaluated {
			continue
		}
		for _, severity := range state.Severities {
			s.add(findings, float64(counts[kind{c.id, severity, noPool}]), c.id, severity.String(), noPool)
			for _, pool := range pools {
				if n := counts[kind{c.id, severity, pool}]; n > 0 && pool != noPool {
					s.add(findings, float64(n), c.id, severity.String(), pool)
				}
			}
		}
	}
	s.add(findingsMuted, float64(r.Summary.Muted))
	s.add(findingsUnsure, float64(unsure))
}
