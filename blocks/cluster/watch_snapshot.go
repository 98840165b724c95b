package cluster

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Snapshot returns the newest state, sorted; nil before every kind was read once, or
// found not to be there. It must not be changed. What did not change since the last
// call is shared with what that returned, so that calling it often is cheap.
//
// Its TakenAt is the API server's time as of which the whole is known to be current:
// nothing older is missing, something newer may already be there. It stands still
// while one of the kinds cannot be watched. When that lasts longer than 30 seconds, the
// kind is a gap though its last known objects are still there, and the clock goes on for
// the others; it stands still for good while none can be watched. A kind that comes back
// is a gap until it has caught up with that.
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

// clockSlack is by how much two estimates of the server's time may differ. By more,
// its clock was set.
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
	s.Cluster.Datastore, s.Cluster.Live = "kubernetes", true
	w.active.served.finish(s)
	return s
}

// tick moves the time that the snapshot is of.
func (w *Watch) tick() {
	var oldest time.Time
	for _, k := range w.active.kinds {
		if !k.absent && !k.stale() && !k.behind() && (oldest.IsZero() || k.current.Before(oldest)) {
			oldest = k.current
		}
	}
	if w.taken = later(w.taken, oldest); w.taken.IsZero() {
		w.taken = w.active.began // nothing can be watched
	}
}

func (w *Watch) missing() []blocks.Gap {
	var out []blocks.Gap
	for _, k := range w.active.kinds {
		switch {
		case k.absent && k.missing != "":
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

// staleness says since when objects have not been known to be current, and why it was
// when that was noticed, so that the words rest. It is replaced by the reason why a watch
// that has ended cannot begin again, and by an answer of the server with another status code.
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
