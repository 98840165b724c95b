package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// discoverFor repeats discovery, and starts a new session when the API group changes. It
// returns when all sessions have ended.
func (w *Watch) discoverFor(ctx context.Context) {
	running := &session{cancel: func() {}}
	defer func() { running.end() }()
	said := ""
	for ctx.Err() == nil {
		found, err := w.discoverTwice(ctx)
		next := w.pace.discover
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if said != err.Error() {
				said = err.Error()
				w.log.Warn("the cluster cannot be discovered", "error", err)
			}
			next = w.pace.maxBackoff
		default:
			said = ""
			if s := w.adopt(found); s != nil {
				running.end() // its objects stay until the new session is complete
				running = s
				s.start(ctx)
			}
		}
		request.Pause(ctx, min(w.pace.confirm, next), nil)
		request.Pause(ctx, max(next-w.pace.confirm, 0), w.rediscovery)
	}
}

// discoverTwice discovers the served resources. A loss is believed only if a second
// discovery confirms it: a server that has just started does not know its CRDs yet.
func (w *Watch) discoverTwice(ctx context.Context) (*served, error) {
	w.client.reset()
	found, err := w.client.discover(ctx, w.override)
	if err != nil || !w.loses(found) {
		return found, err
	}
	request.Pause(ctx, w.pace.confirm, nil)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	again, err := w.client.discover(ctx, w.override)
	if err != nil {
		return nil, err
	}
	if again.group != found.group {
		return nil, errors.New("two consecutive discoveries returned different API groups")
	}
	return again, nil
}

// newest returns the session to keep.
func (w *Watch) newest() *session {
	if w.next != nil {
		return w.next
	}
	return w.active
}

// newestKinds returns the kinds of that session.
func (w *Watch) newestKinds() []*reflector {
	if s := w.newest(); s != nil {
		return s.kinds
	}
	return nil
}

// loses reports whether a discovery lacks a resource that was served before.
func (w *Watch) loses(found *served) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.newest()
	if s == nil {
		return false
	}
	if s.served.group != found.group {
		return true
	}
	for _, k := range decode.Kinds {
		if s.served.has(k) && !found.has(k) {
			return true
		}
	}
	return false
}

// adopt applies the result of a discovery. If the API group changed, it returns a new
// session to start.
func (w *Watch) adopt(found *served) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.newest()
	if old != nil && old.served.group == found.group {
		if old.served.reason != found.reason || old.served.other != found.other || old.served.otherLocked != found.otherLocked {
			w.dirty = true
			w.Signal()
		}
		before := old.served
		old.served = found
		for _, k := range old.kinds {
			if before.has(k.kind) != found.has(k.kind) {
				w.log.Info("the API server serves different resources than before", "resource", k.kind.Resource, "served", found.has(k.kind))
			} else if found.has(k.kind) {
				continue
			}
			k.trigger() // the reason of an absence may have changed, too
		}
		return nil
	}
	if !w.elsewhere {
		w.log.Info("watching Calico's objects", "group", found.group, "because", found.reason)
	}
	s := &session{w: w, served: found, began: time.Now()}
	for _, kind := range kindsOf(w.elsewhere) {
		s.kinds = append(s.kinds, &reflector{w: w, s: s, kind: kind, store: decode.NewStore(kind), wake: make(chan struct{}, 1)})
	}
	w.next = s
	return s
}

func (s *session) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	streams := s.w.whole && s.w.client.streams(ctx)
	s.w.mu.Lock()
	s.streams = streams
	s.w.mu.Unlock()
	for _, k := range s.kinds {
		s.done.Go(func() { k.run(ctx) })
	}
}

func (s *session) end() {
	s.cancel()
	s.done.Wait()
}
