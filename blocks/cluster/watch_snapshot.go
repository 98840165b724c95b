package cluster

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Snapshot returns the newest state, sorted. It returns nil until every kind has been read
// or found absent. The caller must not change it. Calls are cheap, because unchanged data
// is shared with the previous result.
//
// TakenAt is the snapshot's freshness time, by the API server's clock: all kinds are known
// to be current at least as of it. No older change is missing; newer changes may be
// included. It stops while a kind cannot be watched. After 30 seconds (stalenessTimeout),
// the kind becomes a gap, its last known objects stay, and the time advances for the other
// kinds. If no kind can be watched, the time does not advance. A kind that comes back is a
// gap until it has caught up.
func (w *Watch) Snapshot() *blocks.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active == nil {
		return nil
	}
	w.tick()
	takenAt, missing := w.client.clock.At(w.taken), w.missing()
	if w.cached != nil {
		if was := w.cached.Cluster.TakenAt; takenAt.Before(was) && was.Sub(takenAt) < clockSlack {
			takenAt = was
		}
	}
	switch {
	case w.dirty || w.cached == nil || !slices.Equal(missing, w.absences):
		w.cached, w.absences, w.dirty = w.assemble(missing), missing, false
	case !w.cached.Cluster.TakenAt.Equal(takenAt):
		copied := *w.cached
		w.cached = &copied
	default:
		return w.cached
	}
	w.cached.Cluster.TakenAt = takenAt
	return w.cached
}

// clockSlack is the largest expected difference between two estimates of the server's time.
// A larger difference means that the server's clock was set.
const clockSlack = 3 * time.Second

func (w *Watch) assemble(missing []blocks.Gap) *blocks.Snapshot {
	s := decode.NewSnapshot()
	s.Gaps = slices.Clone(missing)
	for _, k := range w.active.kinds {
		k.store.Fill(s)
	}
	slices.SortFunc(s.Gaps, blocks.CompareGaps)
	if w.cached == nil { // no one else has the records yet
		s.Share()
	}
	s.SetVMsKnown(func(r blocks.Resource) bool {
		return slices.ContainsFunc(w.active.kinds, func(k *reflector) bool { return k.kind.Resource == r && k.known && !k.absent })
	})
	s.Cluster.Datastore, s.Cluster.Live, s.Cluster.APIServer = "kubernetes", true, w.client.service()
	if !w.elsewhere {
		w.active.served.finish(s)
	}
	return s
}

// tick advances the snapshot's time.
func (w *Watch) tick() {
	var oldest time.Time
	for _, k := range w.active.kinds {
		if !k.absent && !k.stale() && !k.behind() && (oldest.IsZero() || k.current.Before(oldest)) {
			oldest = k.current
		}
	}
	if w.taken = later(w.taken, oldest); w.taken.IsZero() {
		w.taken = w.active.began // no kind can be watched
	}
}

func (w *Watch) missing() []blocks.Gap {
	var out []blocks.Gap
	for _, k := range w.active.kinds {
		switch {
		case k.missing != "":
			out = append(out, blocks.Gap{Resource: k.kind.Resource, Reason: k.missing})
		case k.stale():
			out = append(out, blocks.Gap{Resource: k.kind.Resource, Reason: k.staleness(), Stale: true})
		case k.behind():
			k.stalled = ""
			out = append(out, blocks.Gap{Resource: k.kind.Resource, Reason: k.since() + ": catching up", Stale: true})
		default:
			k.stalled = ""
		}
	}
	return out
}

// staleness returns since when and why the objects are stale. The text stays the same while
// the staleness lasts. A new cause replaces the old one only if it explains why an ended
// watch cannot restart, or if it is a response with another status code.
func (k *reflector) staleness() string {
	if k.stalled == "" {
		k.stalled, k.why = k.since(), nil
	}
	why := cmp.Or(k.trouble, k.doubt)
	if why != nil && (k.why == nil || errors.Is(k.why, errEnded) || codeOf(why) != 0 && codeOf(why) != codeOf(k.why)) {
		k.why = why
	}
	if k.why == nil {
		return k.stalled
	}
	return k.stalled + ": " + k.why.Error()
}

func (k *reflector) since() string {
	return "not current since " + k.w.client.clock.At(k.current).Format(time.RFC3339)
}
