package metrics

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// How long is the last audit held while some kinds are not known to be current and
// others are: stalenessTimeout at most from when time went on for the others. It counts again
// once it has not for standstill, as when nothing could be reached.
const (
	stalenessTimeout = 2 * time.Minute
	standstill       = time.Minute
)

// outage reports whether a snapshot says no more than that what was audited is no
// longer known to be current: some of it is now a gap, and it is of the same time, or
// what became a gap is only not current, and has not been so for long. The last audit
// then still tells what was known at that time, and alerts that rest on it must not
// end because an API server is restarted, of whose watches some always end before
// others and some are back before others.
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
