package datastore

import (
	"cmp"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit"
)

// eventWants is what is to be told of an audit.
type eventWants struct {
	// findings are those severe enough, worst first; milder the others, and wanted
	// the fingerprints of the former.
	findings []*audit.Finding
	wanted   map[string]bool
	milder   map[string]*audit.Finding
	// silent are the checks that gave no verdict, or not on everything, and muted
	// the fingerprints of muted findings: that those are not found means nothing.
	silent, muted map[string]bool
	// nodes are those that exist.
	nodes map[string]bool
}

func newEventWants(r *audit.Report, least audit.Severity) *eventWants {
	w := &eventWants{
		wanted: map[string]bool{}, milder: map[string]*audit.Finding{}, silent: map[string]bool{}, muted: map[string]bool{}, nodes: map[string]bool{},
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		switch {
		case f.Severity < least:
			w.milder[f.Fingerprint] = f
		case !w.wanted[f.Fingerprint]:
			w.findings = append(w.findings, f)
			w.wanted[f.Fingerprint] = true
		}
	}
	slices.SortStableFunc(w.findings, func(a, b *audit.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	for _, s := range r.SkippedChecks {
		w.silent[s.Check] = true
	}
	for _, m := range r.Muted {
		for i := range m.Findings {
			w.muted[m.Findings[i].Fingerprint] = true
		}
	}
	for _, n := range r.Nodes {
		if !n.Missing {
			w.nodes[n.Name] = true
		}
	}
	return w
}

// node returns the node that an Event about a finding belongs to; empty if there is
// none that exists.
func (w *eventWants) node(f *audit.Finding) string {
	name := f.Subject.Node
	if name == "" {
		owners := slices.Compact(slices.Sorted(slices.Values(f.Nodes)))
		if f.Subject.Kind != audit.KindBlock || len(owners) != 1 {
			return ""
		}
		name = owners[0]
	}
	if !w.nodes[name] {
		return ""
	}
	return name
}

// eventRecord is what Events say of a finding as yet.
type eventRecord struct {
	check, subject string
	// severity is the one that was told of last; 0 after the end was.
	severity audit.Severity
	// node is the node that the Events are about; empty for the common object.
	// elsewhere is true if that was another one.
	node      string
	elsewhere bool
	// last is when that was written, and retry when a refused Event may be tried
	// again, after so many tries.
	last, retry time.Time
	tries       int
}

// What a task is about, in the order of importance.
const (
	taskTell = iota
	taskEnd
	taskRefresh
)

// eventTask is one Event to be written.
type eventTask struct {
	what        int
	fingerprint string
	finding     *audit.Finding // nil if there is none any more
	check       string
	subject     string
	node        string
	before      audit.Severity // what was told of before, for an end
}

// eventBoard is what Events say.
type eventBoard struct {
	records map[string]*eventRecord // by fingerprint
	counts  map[eventKey]int32      // of each Event that is known to exist
}

type eventKey struct{ namespace, name string }

// next returns the most important Event that is due, and how many are; nil if none
// is, and when that changes if nothing else does.
func (b *eventBoard) next(w *eventWants, p eventPace, refresh time.Duration, now time.Time) (task *eventTask, due int, when time.Time) {
	consider := func(t eventTask, at time.Time) {
		switch {
		case at.After(now):
			if when.IsZero() || at.Before(when) {
				when = at
			}
			return
		case task == nil || t.what < task.what || t.what == taskEnd && task.what == taskEnd && t.graver(task):
			task = &t
		}
		due++
	}
	for _, f := range w.findings {
		t := eventTask{what: taskTell, fingerprint: f.Fingerprint, finding: f, check: f.Check, subject: f.Subject.ResourceName(), node: w.node(f)}
		var at time.Time
		if r := b.records[f.Fingerprint]; r != nil {
			at = r.last.Add(p.quiet)
			if r.severity == f.Severity && !r.elsewhere && r.node == t.node {
				t.what, at = taskRefresh, r.last.Add(refresh)
			}
			at = later(at, r.retry)
		}
		consider(t, at)
	}
	for fingerprint, r := range b.records {
		if r.severity == 0 || w.wanted[fingerprint] || w.silent[r.check] || w.muted[fingerprint] {
			continue
		}
		t := eventTask{
			what: taskEnd, fingerprint: fingerprint, finding: w.milder[fingerprint], check: r.check, subject: r.subject, node: r.node, before: r.severity,
		}
		consider(t, later(r.last.Add(p.quiet), r.retry))
	}
	return task, due, when
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *eventTask) graver(o *eventTask) bool {
	return cmp.Or(cmp.Compare(o.before, t.before), cmp.Compare(t.fingerprint, o.fingerprint)) < 0
}

// forget drops what ended so long ago that its Events are gone, too.
func (b *eventBoard) forget(now time.Time) {
	for fingerprint, r := range b.records {
		if r.severity == 0 && now.Sub(later(r.last, r.retry)) > 24*time.Hour {
			delete(b.records, fingerprint)
			for k := range b.counts {
				if fingerprintOf(k.name) == fingerprint {
					delete(b.counts, k)
				}
			}
		}
	}
}
