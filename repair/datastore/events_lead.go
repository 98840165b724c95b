package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
)

// lead writes Events until ctx ends, which is when the Lease is lost or given back.
func (e *Events) lead(ctx context.Context) {
	e.leading.Store(true)
	e.opts.Log.Info("This replica writes Events now", "identity", e.identity)
	defer func() {
		e.leading.Store(false)
		e.waiting.Store(0)
		e.opts.Log.Info("This replica writes no Events any more", "identity", e.identity)
	}()
	var (
		board *eventBoard // nil until it is read
		pause = e.pace.backoff
		token bool // the rate limit allows one Event
		held  bool // it was said that Events are held back
	)
	fail := func() {
		sleep(ctx, pause)
		pause = min(2*pause, e.pace.most)
	}
	for ctx.Err() == nil {
		w := e.wants.Load()
		if w == nil || !e.lock.held() {
			e.idle(ctx, e.pace.retry/4)
			continue
		}
		if board == nil {
			if board = e.load(ctx); board == nil {
				fail()
				continue
			}
		}
		now := time.Now()
		board.forget(now)
		task, due, when := board.next(w, e.pace, e.opts.Refresh, now)
		e.waiting.Store(int64(due))
		if task == nil {
			held = false
			wait := e.opts.Refresh
			if !when.IsZero() {
				wait = time.Until(when)
			}
			e.idle(ctx, wait)
			continue
		}
		if token = token || e.limiter.TryAccept(); !token {
			if !held {
				held = true
				e.opts.Log.Info("The rate limit holds Events back; the worst are written first", "waiting", due)
			}
			token = e.limiter.Wait(ctx) == nil
			continue // something worse may have come meanwhile
		}
		token = false
		switch e.write(ctx, board, task) {
		case eventDone:
			pause = e.pace.backoff
		case eventLost:
			board = nil
			fail()
		case eventFailed:
			fail()
		}
	}
}

// idle waits for another audit, but no longer than d.
func (e *Events) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-e.wake:
	}
}

// Labels and annotations of Events.
const (
	labelManagedBy   = "app.kubernetes.io/managed-by"
	labelFingerprint = "calico-audit/fingerprint"
	noteCheck        = "calico-audit/check"
	noteSubject      = "calico-audit/subject"
	noteSeverity     = "calico-audit/severity" // empty for the end
	noteLease        = "calico-audit/lease"
)

func eventPath(namespace, name string) string {
	p := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/events"
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// load reads which Events there are, so that a new writer does not repeat what the
// one before has told, and tells the end of what ended meanwhile. It is nil if they
// cannot be read.
func (e *Events) load(ctx context.Context) *eventBoard {
	namespaces := []string{metav1.NamespaceDefault}
	ref, err := e.target(ctx)
	if err != nil {
		return nil
	}
	if ref != nil && !slices.Contains(namespaces, eventNamespace(ref)) {
		namespaces = append(namespaces, eventNamespace(ref))
	}
	b := &eventBoard{records: map[string]*eventRecord{}, counts: map[eventKey]int32{}}
	for _, namespace := range namespaces {
		list, err := e.list(ctx, namespace)
		if ctx.Err() != nil {
			return nil
		}
		e.troubles.note(troubleList, namespace, troubleKind(err), err, "namespace", namespace)
		if err != nil {
			e.failed.Add(1)
			return nil
		}
		for i := range list {
			e.learn(b, &list[i], ref)
		}
	}
	return b
}

func (e *Events) list(ctx context.Context, namespace string) ([]corev1.Event, error) {
	body, err := e.client.send(ctx, request{
		method: http.MethodGet, path: eventPath(namespace, ""), query: url.Values{"labelSelector": {labelManagedBy + "=" + manager}},
	})
	if err != nil {
		return nil, err
	}
	var list corev1.EventList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the answer is no list of Events: %w", err)
	}
	return list.Items, nil
}

// learn takes an Event for what it says, if it is one of ours. What the writer of
// another Lease tells of is not ours to end. common is the object for what concerns no
// node.
func (e *Events) learn(b *eventBoard, v *corev1.Event, common *corev1.ObjectReference) {
	fingerprint := fingerprintOf(v.Name)
	severity, err := audit.ParseSeverity(v.Annotations[noteSeverity])
	if err != nil {
		severity = 0
	}
	if fingerprint == "" || v.Name != eventName(fingerprint, severity) {
		return
	}
	b.counts[eventKey{v.Namespace, v.Name}] = v.Count
	if r := b.records[fingerprint]; r != nil && !v.LastTimestamp.After(r.last) || v.Annotations[noteLease] != e.leaseNote() {
		return
	}
	r := &eventRecord{check: v.Annotations[noteCheck], subject: v.Annotations[noteSubject], severity: severity, last: v.LastTimestamp.Time}
	switch about := v.InvolvedObject; {
	case about.Kind == "Node":
		r.node = about.Name
	case common != nil:
		r.elsewhere = about.Kind != common.Kind || about.Namespace != common.Namespace || about.Name != common.Name || about.UID != common.UID
	}
	b.records[fingerprint] = r
}

func (e *Events) leaseNote() string { return e.opts.Namespace + "/" + e.opts.Lease }

// fingerprintOf returns the fingerprint in the name of an Event; empty if it is no
// such name.
func fingerprintOf(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || parts[0] != manager {
		return ""
	}
	return parts[1]
}
