package metrics

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// The last audit is kept while some kinds are stale and others are current, for at most
// stalenessTimeout after time began to advance for the current ones. If time stops for standstill,
// as when the whole API server is unreachable, the count starts again.
const (
	stalenessTimeout = 2 * time.Minute
	standstill       = time.Minute
)

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
