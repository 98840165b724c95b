package metrics

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/blocks"
)

// How often is audited after changes: debounce gathers what changes together, and
// auditGap is the least time from the start of one audit to that of the next. In the
// long run a twentieth of the time goes into audits (pace is its inverse), but what has
// changed waits no longer than longestWait for the next or, where audits take longer
// than that allows, four times as long as the last took. After a quiet spell as long as
// credit the first audits need not wait for each other.
const (
	debounce    = 200 * time.Millisecond
	auditGap    = time.Second
	pace        = 20
	longestWait = 6 * time.Second
	credit      = time.Minute
)

// settle is how long a finding that rests on absence must have been found before it
// is confirmed. A second reading is of all findings that await one; the next begins
// readingGap after it has ended, or nine times as long as it took if that is longer: at
// most a tenth of the time is spent on them.
const (
	propagationDelay = 2 * time.Second
	readingGap       = 10 * time.Second
)

// loop audits, again and again. All of it runs in one goroutine, second readings
// excepted.
type loop struct {
	*Exporter
	tracker audit.Tracker

	// last is the snapshot that was looked at last, and audited that of the last
	// audit that succeeded. The last one, if it did or not, began then, and the next
	// may begin at the earliest.
	last, audited   *blocks.Snapshot
	began, earliest time.Time
	// paid is when the audits so far have taken no more than their part of the time.
	paid time.Time
	// again is true if an audit is due though the snapshot may be the same. So is one
	// of a snapshot that was taken at the deadline or later, if there is one, because
	// ages are others by then, and one that begins after aged.
	again          bool
	deadline, aged time.Time
	// While the last audit is held, staleAt is the time that is known to be current of
	// what can be watched, moved when it last changed, and moving since when it goes
	// on; all zero if the last audit is not held.
	staleAt, moved, moving time.Time
	// due is when the next audit is due.
	due time.Time

	// reading delivers the second reading that is under way; nil if none is.
	reading     chan secondReading
	nextReading time.Time
	// unread is what the last second reading could not read.
	unread []blocks.Gap
}

// secondReading is what came of reading again what findings rest on.
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
				l.soon(time.Now().Add(debounce / 2)) // no one has anything yet, but to assemble a snapshot is work
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

// soon makes an audit due as soon as may be, but not before a time.
func (l *loop) soon(at time.Time) {
	if at.Before(l.earliest) {
		at = l.earliest
	}
	if at.Before(l.due) {
		l.due = at
	}
}

// pay says when the next audit may begin, after one that ends now.
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

// wake returns when there is something to do.
func (l *loop) wake() time.Time {
	if prints, _, _ := l.tracker.Pending(); l.reading == nil && len(prints) > 0 && l.nextReading.Before(l.due) {
		return l.nextReading
	}
	return l.due
}

// audit audits what is known now, unless it is what was looked at last.
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

// look holds the last audit in an outage, says that it is of a later time where nothing
// else has changed, and otherwise makes another.
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
		return // it was logged and counted; what is known gets old
	}
	first := l.Current() == nil
	if first {
		// What is served first is as confirmed as a report: an exporter that starts
		// again must not make an alert end for a moment.
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
		debug.FreeOSMemory() // reading the lists took more than anything after it will
	}
	if l.Mutes == nil {
		return
	}
	if ends := l.Mutes.NextExpiry(s.Cluster.TakenAt); l.deadline.IsZero() || !ends.IsZero() && ends.Before(l.deadline) {
		l.deadline = ends
	}
}

// older reports whether ages may count otherwise than in the last audit, in what is
// known as of a time.
func (l *loop) older(takenAt time.Time) bool {
	return !l.deadline.IsZero() && !takenAt.Before(l.deadline) || !l.began.Before(l.aged)
}

// confirmed confirms the first verdict, as a report does.
func (l *loop) confirmed(ctx context.Context, j *evaluated) *evaluated {
	defer func() { l.tracker.Accept(j.result, j.state.Cluster.TakenAt) }()
	resources := j.result.NeedsConfirmation()
	if len(resources) == 0 {
		return j
	}
	second, err := l.reread(ctx, j.state.Snapshot, resources, j.result.ViewsToConfirm(), checks.All)
	l.began = time.Now() // what the cluster took to answer is not the audit's
	if err != nil {
		l.failed(resources, err)
		j.result = j.result.Unconfirmed(err)
		l.again, l.due = true, time.Now().Add(auditGap) // which takes them up as it takes up new ones
		return j
	}
	second.result = audit.Confirm(j.result, second.result)
	return second
}

// confirm begins a second reading if findings await one and it may begin now.
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

// takeSecondReading takes in a second reading, and has its outcome published.
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
