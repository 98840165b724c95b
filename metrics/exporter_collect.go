package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Describe implements [prometheus.Collector].
func (e *Exporter) Describe(ch chan<- *prometheus.Desc) { describe(ch, exporterGroups) }

// Collect implements [prometheus.Collector]: the numbers of the last audit.
func (e *Exporter) Collect(ch chan<- prometheus.Metric) {
	send := func(f *Family, v float64, labels ...string) { ch <- f.metric(v, labels...) }
	send(buildInfo, 1, e.Build.Version, e.Build.Revision, e.Build.GoVersion)
	send(auditsTotal, float64(e.audits.Load()))
	send(auditErrorsTotal, float64(e.errors.Load()))
	send(secondReadingTotal, float64(e.readings.Load()))
	restarts := e.Source.Restarts()
	for _, r := range blocks.Resources {
		send(watchRestartsTotal, float64(restarts[r]), string(r))
	}
	if e.Events != nil {
		c := e.Events()
		send(eventsWritten, float64(c.Written))
		send(eventErrors, float64(c.Failed))
		send(eventsWaiting, float64(c.Waiting))
		send(eventsWriter, number(c.Leading))
	}
	a := e.Current()
	if a == nil {
		send(snapshotComplete, 0)
		return
	}
	rep := e.reportOf(a)
	if at := rep.Cluster.TakenAt; !at.IsZero() {
		send(snapshotTime, float64(at.UnixMilli())/1000)
	}
	send(snapshotComplete, number(rep.Complete))
	send(snapshotGaps, float64(len(blocks.NotHeld(rep.Gaps))))
	send(auditTook, a.Duration.Seconds())
	for _, p := range a.points {
		send(p.family, p.value, append([]string(nil), p.labels...)...)
	}
	a.collectFindings(send)
}

func (a *Audit) collectFindings(send func(*Family, float64, ...string)) {
	type kind struct {
		check    string
		severity state.Severity
	}
	counts := map[kind]int{}
	for i := range a.Report.Findings {
		f := &a.Report.Findings[i]
		counts[kind{f.Check, f.Severity}]++
	}
	for _, c := range a.checks {
		send(checkSuccess, number(c.judged), c.id)
		send(checkTook, c.took.Seconds(), c.id)
		if !c.judged {
			continue
		}
		for _, s := range state.Severities {
			send(findings, float64(counts[kind{c.id, s}]), c.id, s.String())
		}
	}
	send(findingsMuted, float64(a.Report.Summary.Muted))
	send(findingsUnsure, float64(a.unsure))
}
