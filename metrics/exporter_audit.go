package metrics

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// evaluated is a snapshot with the results of the checks.
type evaluated struct {
	state  *state.State
	result *audit.Result
	checks []checkRun
}

// evaluate runs checks over a snapshot. A failing check does not affect the others.
func (e *Exporter) evaluate(s *blocks.Snapshot, checks []*audit.Check) (*evaluated, error) {
	var st *state.State
	if err := e.guarded(func() { st = state.New(s, state.Options{Grace: e.Grace}) }); err != nil {
		return nil, fmt.Errorf("auditing: %w", err)
	}
	out := &evaluated{state: st}
	results := make([]*audit.Result, 0, len(checks))
	for _, c := range checks {
		began := time.Now()
		var r *audit.Result
		err := e.guarded(func() { r = audit.Run(st, []*audit.Check{c}) })
		if err != nil {
			e.Log.Error("a check failed: this is a bug in calico-audit", "check", c.ID, "error", err)
			r = &audit.Result{Skipped: []audit.Skipped{{Check: c.ID, Reason: "it failed: " + err.Error()}}, Inconclusive: []string{c.ID}}
		}
		results = append(results, r)
		if c.HostViews && len(s.Hosts.Views) == 0 {
			continue // without views, this is neither a verdict nor a failure
		}
		out.checks = append(out.checks, checkRun{c.ID, time.Since(began), !slices.Contains(r.Inconclusive, c.ID)})
	}
	out.result = audit.Join(results...)
	return out, nil
}

// guarded calls f and turns a panic into an error, so that one bad object does not stop the
// exporter.
func (e *Exporter) guarded(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.errors.Add(1)
			err = fmt.Errorf("%v", p)
			e.Log.Error("failure inside the program", "error", err, "stack", string(debug.Stack()))
		}
	}()
	f()
	return nil
}

func (e *Exporter) reread(ctx context.Context, s *blocks.Snapshot, resources []blocks.Resource, nodes []string, checks []*audit.Check) (*evaluated, error) {
	e.readings.Add(1)
	second, err := e.Source.Reread(ctx, s, resources, nodes)
	if err != nil {
		return nil, err
	}
	return e.evaluate(second, checks)
}

// publish makes an audit from the results and sets it as the current one, unless that
// fails.
func (e *Exporter) publish(ctx context.Context, j *evaluated, unsure int, took time.Duration) error {
	a := &Audit{seen: time.Now()}
	err := e.guarded(func() {
		a.Report = audit.NewReport(j.state, j.result)
		if e.Mutes != nil {
			a.Report.Mute(e.Mutes)
		}
		a.samples.addNumbers(j.state, a.Report, e.ExporterOptions)
		a.samples.addFindings(a.Report, j.checks, unsure)
		a.samples.add(auditTook, took.Seconds())
	})
	if err != nil {
		return fmt.Errorf("making the report: %w", err)
	}
	snapshot, result := j.state.Snapshot, j.result // release the State
	a.usage = sync.OnceValue(func() audit.Usage { return e.usageOf(snapshot, result) })
	if last := e.Current(); last != nil && last.Report.Cluster.TakenAt.Equal(a.Report.Cluster.TakenAt.Time) {
		a.seen = last.seen
	}
	e.audits.Add(1)
	e.current.Store(a)
	if e.after != nil {
		e.after(ctx, a)
	}
	return nil
}

// usageOf computes the Usage of a snapshot; nil on failure. It builds the State again,
// because Usage is rarely requested and the State is larger than its snapshot.
func (e *Exporter) usageOf(s *blocks.Snapshot, r *audit.Result) (out audit.Usage) {
	_ = e.guarded(func() { out = audit.NewUsage(state.New(s, state.Options{Grace: e.Grace}), r) }) // the error is logged; the report works without it
	return out
}

// markStale marks the current audit as incomplete, with the gaps of a newer snapshot.
func (e *Exporter) markStale(gaps []blocks.Gap) {
	a := *e.Current()
	old := *a.Report
	old.Complete, old.Gaps = false, gaps
	a.Report = &old
	e.current.Store(&a)
}

// touch records that the current audit is still valid at a later time.
func (e *Exporter) touch(takenAt time.Time) {
	a := *e.Current()
	later := *a.Report
	later.Cluster.TakenAt = audit.Time{Time: takenAt}
	a.Report, a.seen = &later, time.Now()
	e.current.Store(&a)
}
