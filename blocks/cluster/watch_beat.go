package cluster

import (
	"context"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"time"
)

// A stream without events tells nothing: the objects may rest, the connection may
// be dead, or the API server may have lost its datastore. So one object of a watched
// kind is read every few seconds, by a request that the server answers from its
// datastore or from a cache that it has compared with it. An answer proves for every
// stream that was open in good time before the question was sent that nothing is
// missing from before, once what has come by it is taken over. An event proves
// nothing: those of other kinds, or older ones of its own, may be waiting still.
//
// An answer is about one kind, and is taken as proof that the server sends what there
// is of the others, too. It keeps a cache of each kind: when one of these gets stuck
// and the others do not, that is noticed only when the question comes to that kind and
// fails, when its bookmarks stay away, or when its stream ends after some minutes.
//
// That holds if it is one server that sends all of it. HTTP/2 makes sure of that
// with one connection for everything; a stream that is left on an older one, which
// may lead to another server, is moved. For HTTP/1.1, which needs a connection for
// each stream, it must be believed; and so it must behind a proxy that speaks HTTP/2
// itself and spreads the requests of one connection over several servers.
//
// Kinds take turns with the question, so that a right taken away, or a CRD, is
// noticed though its stream stays open.

// beatFor asks until ctx ends.
func (w *Watch) beatFor(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		sent := time.Now()
		k := w.nextOpen(turn)
		if k == nil {
			w.signal() // time passes, and makes gaps
			pause(ctx, w.pace.beat, w.wakeBeat)
			pause(ctx, w.pace.settle, nil)
			continue
		}
		conn, err := w.ask(ctx, k)
		var drained map[*keeper]bool
		if err == nil {
			drained = w.drain(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		pause(ctx, w.answered(k, conn, drained, sent, err), w.wakeBeat)
		// Streams that have just begun are to catch up first.
		pause(ctx, w.pace.settle, nil)
	}
}

// nextOpen returns a keeper with an open stream, another at each turn.
func (w *Watch) nextOpen(turn int) *keeper {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.newest()
	if s == nil {
		return nil
	}
	for i := range s.kinds {
		if k := s.kinds[(turn+i)%len(s.kinds)]; !k.opened.IsZero() {
			return k
		}
	}
	return nil
}

// ask reads one object of a kind.
func (w *Watch) ask(ctx context.Context, k *keeper) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.pace.answer, errSlow)
	defer cancel()
	w.mu.Lock()
	l := &lister{kind: k.kind, group: k.s.served.group}
	w.mu.Unlock()
	answer, conn, err := w.client.open(ctx, l.path(), url.Values{"limit": {"1"}}, k.kind.Accept("List"))
	if err != nil {
		return nil, because(ctx, err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return nil, because(ctx, err)
	}
	return conn, nil
}

// answered draws the conclusions from an answer, and returns when to ask again. The
// streams of the drained keepers hold nothing that had come when it came.
func (w *Watch) answered(k *keeper, conn net.Conn, drained map[*keeper]bool, sent time.Time, err error) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	switch code := codeOf(err); {
	case err == nil:
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusNotFound:
		// The server is well, but this kind is not to be had any more.
		if k.stop != nil {
			k.stop(err)
		}
		return w.pace.hurry
	default:
		if w.trouble == nil {
			w.log.Warn("the API server does not answer as it should", "error", err)
		}
		w.trouble = err
		if time.Since(w.asked) > w.pace.stall {
			w.asked = time.Now()
			w.conns.CloseAll()
		}
		return w.pace.hurry
	}
	if w.trouble != nil {
		w.log.Info("the API server answers again")
	}
	w.asked, w.trouble = sent, nil
	next := w.pace.beat
	for k := range w.keepers() {
		switch {
		case k.opened.IsZero():
		case sent.Sub(k.opened) < w.pace.settle:
			next = 0 // a settling time passes anyway
		case k.conn != conn:
			k.stop(errMoved)
			next = 0
		case !drained[k]:
			next = 0
		default:
			// What was sent last may be on its way still.
			k.current = later(k.current, sent.Add(-w.pace.settle))
		}
	}
	return next
}

// keepers yields those of both sessions. The watch must be locked.
func (w *Watch) keepers() iter.Seq[*keeper] {
	return func(yield func(*keeper) bool) {
		for _, s := range []*session{w.active, w.next} {
			if s == nil {
				continue
			}
			for _, k := range s.kinds {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
