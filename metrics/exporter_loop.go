package metrics

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/blocks"
)

// The pace of audits. debounce collects changes. auditGap is the minimum time between the starts of
// two audits. In the long run, audits take 1/pace of the time. A change waits at most longestWait,
// or four times the duration of the last audit if that is longer. After a quiet period of length
// credit, the first audits do not wait.
const (
	debounce    = 200 * time.Millisecond
	auditGap    = time.Second
	pace        = 20
	longestWait = 6 * time.Second
	credit      = time.Minute
)

// propagationDelay is how long a finding about an absent object must last before it is
// confirmed. A second reading covers all findings that need one. The next reading starts
// readingGap after the last ended, or nine times its duration if that is longer, so
// readings take at most a tenth of the time.
const (
	propagationDelay = 2 * time.Second
	readingGap       = 10 * time.Second
)

// loop runs the audits. Everything except second readings runs in one goroutine.
type loop struct {
	*Exporter
	tracker audit.Tracker

	// last is the snapshot of the last look; audited is the snapshot of the last successful
	// audit. began is when the last audit began, successful or not. earliest is when the
	// next may begin.
	last, audited   *blocks.Snapshot
	began, earliest time.Time
	// paid is the time until which the audits so far have used up their share.
	paid time.Time
	// again requests an audit even if the snapshot is unchanged. An audit is also due for a
	// snapshot taken after aged, or at deadline or later, because an age then changes a verdict.
	again          bool
	deadline, aged time.Time
	// Set while the last audit is kept during an outage, else zero. staleAt is the time of the
	// kinds that are still watched, moved is when it last changed, and moving since when it has
	// been advancing.
	staleAt, moved, moving time.Time
	// due is when the next audit is due.
	due time.Time

	// reading receives the result of the running second reading; nil if none is running.
	reading     chan secondReading
	nextReading time.Time
	// unread holds the resources that the last second reading could not read.
	unread []blocks.Gap
}

// secondReading is the result of a second reading.
type secondReading struct {
	prints    []string
	resources []blocks.Resource
	found     *evaluated
	err       error
	took      time.Duration
}

func newLoop(e *Exporter) *loop {
	return &loop{Exporter: e, tracker: audit.Tracker{PropagationDelay: propagationDelay}}
}

func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(l.Interval)
	defer timer.Stop()
	l.due = time.Now()
	for {
		timer.Reset(time.Until(l.wake()))
		select {
		case <-ctx.Done():
			if l.reading != nil {
				<-l.reading
			}
			return
		case <-l.Source.Changed():
			if l.Current() == nil {
				l.soon(time.Now().Add(debounce / 2)) // assembling a snapshot takes time, and there is nothing to serve yet
				continue
			}
			l.soon(time.Now().Add(debounce))
		case r := <-l.reading:
			l.takeSecondReading(ctx, r)
		case <-timer.C:
			if !time.Now().Before(l.due) {
				l.due = time.Now().Add(l.Interval)
				l.audit(ctx)
			}
			l.confirm(ctx)
		}
	}
}

// soon schedules an audit at the given time, or at the earliest possible time after it.
func (l *loop) soon(at time.Time) {
	if at.Before(l.earliest) {
		at = l.earliest
	}
	if at.Before(l.due) {
		l.due = at
	}
}

// pay computes when the next audit may begin, after one that ends now.
func (l *loop) pay() {
	now := time.Now()
	took := now.Sub(l.began)
	if saved := l.began.Add(-credit); l.paid.Before(saved) {
		l.paid = saved
	}
	l.paid = l.paid.Add(pace * took)
	l.earliest = l.paid
	if latest := now.Add(max(longestWait, 4*took)); latest.Before(l.earliest) {
		l.earliest = latest
	}
	if next := l.began.Add(auditGap); l.earliest.Before(next) {
		l.earliest = next
	}
}

// wake returns the time of the next action.
func (l *loop) wake() time.Time {
	if prints, _, _ := l.tracker.Pending(); l.reading == nil && len(prints) > 0 && l.nextReading.Before(l.due) {
		return l.nextReading
	}
	return l.due
}

// audit audits the present snapshot, unless it was looked at last.
func (l *loop) audit(ctx context.Context) {
	s := l.Source.Snapshot()
	if s == nil || s == l.last && !l.again && !l.tracker.Unsettled {
		return
	}
	l.began = time.Now()
	l.look(ctx, s)
	l.pay()
	if l.tracker.Unsettled && l.audited == s {
		l.soon(time.Now().Add(propagationDelay))
	}
}

// look handles a snapshot. During an outage it keeps the last audit. If only the time has
// changed, it updates the time of the last audit. Otherwise it makes a new one.
func (l *loop) look(ctx context.Context, s *blocks.Snapshot) {
	again := l.again || l.tracker.Unsettled
	l.last, l.again = s, false
	switch {
	case l.Current() == nil:
	case l.outage(s):
		l.markStale(s.Gaps)
		l.again = true
		return
	case !again && !l.older(s.Cluster.TakenAt) && s.SameObjects(l.audited):
		l.touch(s.Cluster.TakenAt)
		l.audited, l.due = s, l.aged
		return
	}
	l.staleAt, l.moved, l.moving = time.Time{}, time.Time{}, time.Time{}
	j, err := l.evaluate(s, checks.All)
	if err != nil {
		l.again = true
		return // logged and counted; the served state becomes older
	}
	first := l.Current() == nil
	if first {
		// The first audit is confirmed like a report, so that a restart of the exporter
		// does not resolve alerts for a moment.
		j = l.confirmed(ctx, j)
	} else {
		j.result = l.tracker.Observe(j.result, j.state.Cluster.TakenAt)
		if l.tracker.Unsure == 0 {
			l.unread = nil
		}
	}
	if ctx.Err() != nil {
		return
	}
	j.result.Unread = l.unread
	if err := l.publish(ctx, j, l.tracker.Unsure, time.Since(l.began)); err != nil {
		l.again = true
		return
	}
	l.audited, l.aged, l.deadline = s, l.began.Add(l.Interval), j.state.NextDeadline()
	if first {
		debug.FreeOSMemory() // listing took more memory than any later work
	}
	if l.Mutes == nil {
		return
	}
	if ends := l.Mutes.NextExpiry(s.Cluster.TakenAt); l.deadline.IsZero() || !ends.IsZero() && ends.Before(l.deadline) {
		l.deadline = ends
	}
}

// older reports whether verdicts that depend on age may have changed since the last audit.
// takenAt is the time of the new state.
func (l *loop) older(takenAt time.Time) bool {
	return !l.deadline.IsZero() && !takenAt.Before(l.deadline) || !l.began.Before(l.aged)
}

// confirmed confirms the first audit, as a report does.
func (l *loop) confirmed(ctx context.Context, j *evaluated) *evaluated {
	defer func() { l.tracker.Accept(j.result, j.state.Cluster.TakenAt) }()
	resources := j.result.NeedsConfirmation()
	if len(resources) == 0 {
		return j
	}
	second, err := l.reread(ctx, j.state.Snapshot, resources, j.result.ViewsToConfirm(), checks.All)
	l.began = time.Now() // waiting for the cluster is not part of the audit's cost
	if err != nil {
		l.failed(resources, err)
		j.result = j.result.Unconfirmed(err)
		l.again, l.due = true, time.Now().Add(auditGap) // the next audit treats the findings as new
		return j
	}
	second.result = audit.Confirm(j.result, second.result)
	return second
}

// confirm starts a second reading if findings need one and it may begin.
func (l *loop) confirm(ctx context.Context) {
	now := time.Now()
	if l.reading != nil || now.Before(l.nextReading) {
		return
	}
	prints, checks, nodes := l.tracker.Pending()
	if len(prints) == 0 {
		return
	}
	s := l.Source.Snapshot()
	if s == nil {
		return
	}
	l.reading = make(chan secondReading, 1)
	go func(out chan<- secondReading) {
		r := secondReading{prints: prints, resources: audit.Reads(checks)}
		r.found, r.err = l.reread(ctx, s, r.resources, nodes, checks)
		r.took = time.Since(now)
		out <- r
	}(l.reading)
}

// takeSecondReading records the result of a second reading and schedules an audit.
func (l *loop) takeSecondReading(ctx context.Context, r secondReading) {
	l.reading, l.nextReading = nil, time.Now().Add(max(readingGap, 9*r.took))
	if ctx.Err() != nil {
		return
	}
	if r.err != nil {
		l.failed(r.resources, r.err)
		l.tracker.Reread(r.prints, nil)
	} else {
		l.unread = nil
		l.tracker.Reread(r.prints, r.found.result)
	}
	l.again = true
	l.soon(time.Now().Add(debounce))
}

func (l *loop) failed(resources []blocks.Resource, err error) {
	l.errors.Add(1)
	l.unread = audit.UnreadGaps(resources, err)
	l.Log.Warn("findings could not be confirmed by a second reading", "error", err)
}

// outage reports whether a snapshot only shows that the last audit may be out of date. In such a
// snapshot some kinds have become gaps, and either its time has not advanced, or these kinds became
// stale only recently. The last audit then still describes the cluster at its time. Alerts must not
// end because an API server restarts: some watches always end, and resume, before others.
func (l *loop) outage(s *blocks.Snapshot) bool {
	lost, stale := false, true
	for _, g := range s.Gaps {
		if _, before := l.audited.Missing(g.Resource); g.Whole() && !before {
			lost, stale = true, stale && g.Stale
		}
	}
	at, now := s.Cluster.TakenAt, l.began
	switch {
	case !lost:
		return false
	case !at.After(l.audited.Cluster.TakenAt):
		return true
	case !stale:
		return false
	case !at.Equal(l.staleAt):
		if now.Sub(l.moved) >= standstill {
			l.moving = now
		}
		l.staleAt, l.moved = at, now
	}
	return now.Sub(l.moving) < stalenessTimeout || now.Sub(l.moved) >= standstill
}

// The last audit is kept while some kinds are stale and others are current, for at most
// stalenessTimeout after time began to advance for the current ones. If time stops for standstill,
// as when the whole API server is unreachable, the count starts again.
const (
	stalenessTimeout = 2 * time.Minute
	standstill       = time.Minute
)
