package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
)

// What became of writing an Event.
type eventOutcome int

const (
	eventDone   eventOutcome = iota // written, or put off
	eventFailed                     // the API server cannot be reached, or is too busy
	eventLost                       // there are other Events than was thought
)

// write writes one Event: a new one, or the one of its name anew.
func (e *Events) write(ctx context.Context, b *eventBoard, t *eventTask) eventOutcome {
	v, severity := e.compose(ctx, t)
	if ctx.Err() != nil {
		return eventFailed
	}
	r := b.records[t.fingerprint]
	if r == nil {
		r = &eventRecord{}
		b.records[t.fingerprint] = r
	}
	if v == nil { // the object that it would be about is not known
		e.putOff(r)
		return eventDone
	}
	key := eventKey{v.Namespace, v.Name}
	count, exists := b.counts[key]
	v.Count = count + 1
	err := e.send(ctx, v, exists)
	status := statusOf(err)
	switch {
	case err == nil:
		e.written.Add(1)
		b.counts[key] = v.Count
		b.records[t.fingerprint] = &eventRecord{
			check: t.check, subject: t.subject, severity: severity, node: t.node, last: v.LastTimestamp.Time,
		}
		e.troubles.note(troubleWrite, "", "", nil)
		if r.tries > 0 {
			e.troubles.note(troubleRefused, "", "", nil)
		}
		e.conflict = eventKey{}
		return eventDone
	case ctx.Err() != nil:
		return eventFailed
	case exists && absent(err, v.Name):
		delete(b.counts, key) // it has expired, or somebody deleted it
		return eventDone
	case !exists && status != nil && status.Code == http.StatusConflict:
		if e.conflict == key { // it exists, and does not say that it is ours
			b.counts[key] = 1
			return eventDone
		}
		e.conflict = key
		return eventLost // made by a request whose answer was lost
	}
	e.failed.Add(1)
	if refused(err) && !throttled(err) && status.Code != http.StatusUnauthorized {
		// It may be about this one Event: let others have their turn.
		e.troubles.note(troubleRefused, "", troubleKind(err), err, "namespace", v.Namespace, "event", v.Name)
		e.putOff(r)
		return eventDone
	}
	e.troubles.note(troubleWrite, "", troubleKind(err), err)
	return eventFailed
}

// putOff has an Event wait longer each time that it is refused.
func (e *Events) putOff(r *eventRecord) {
	r.retry = time.Now().Add(min(e.pace.most, e.pace.backoff<<min(r.tries, 20)))
	r.tries++
}

// compose makes the Event of a task, and says which severity it tells of. The Event
// is nil if it is not known which object it is about.
func (e *Events) compose(ctx context.Context, t *eventTask) (*corev1.Event, audit.Severity) {
	var severity audit.Severity
	v := &corev1.Event{}
	if t.what == taskEnd {
		v.Type, v.Action = corev1.EventTypeNormal, "Resolve"
		v.Reason, v.Message = endMessage(t)
	} else {
		severity = t.finding.Severity
		v.Type, v.Action = eventType(severity), "Audit"
		v.Reason, v.Message = eventReason(t.check), findingMessage(t.finding)
	}
	if t.node != "" {
		v.InvolvedObject = nodeReference(t.node)
	} else {
		ref, _ := e.target(ctx) // why there is none has been said
		if ref == nil {
			return nil, 0
		}
		v.InvolvedObject = *ref
	}
	v.APIVersion, v.Kind = "v1", "Event"
	v.Namespace, v.Name = eventNamespace(&v.InvolvedObject), eventName(t.fingerprint, severity)
	v.Labels = map[string]string{labelManagedBy: manager, labelFingerprint: t.fingerprint}
	v.Annotations = map[string]string{noteCheck: t.check, noteSubject: t.subject, noteSeverity: severity.String(), noteLease: e.leaseNote()}
	v.FirstTimestamp = metav1.Now()
	v.LastTimestamp = v.FirstTimestamp
	v.Source.Component, v.ReportingController, v.ReportingInstance = manager, manager, cut(e.instance, 128)
	return v, severity
}

// send creates an Event, or writes the one of its name anew. A patch names all that
// may differ, so that it may be sent again. An Event that exists keeps its first
// time.
func (e *Events) send(ctx context.Context, v *corev1.Event, exists bool) error {
	r := request{method: http.MethodPost, path: eventPath(v.Namespace, ""), query: asManager(), contentType: "application/json"}
	content := any(v)
	if exists {
		r.method, r.path, r.contentType = http.MethodPatch, eventPath(v.Namespace, v.Name), "application/merge-patch+json"
		content = map[string]any{
			"metadata": map[string]any{"labels": v.Labels, "annotations": v.Annotations},
			"involvedObject": map[string]any{
				"apiVersion": v.InvolvedObject.APIVersion, "kind": v.InvolvedObject.Kind, "name": v.InvolvedObject.Name,
				"namespace": orNull(v.InvolvedObject.Namespace), "uid": orNull(string(v.InvolvedObject.UID)),
			},
			"type": v.Type, "reason": v.Reason, "message": v.Message, "action": v.Action,
			"count": v.Count, "lastTimestamp": v.LastTimestamp, "reportingInstance": v.ReportingInstance,
		}
	}
	var err error
	if r.body, err = json.Marshal(content); err != nil {
		return fmt.Errorf("writing an Event: %w", err)
	}
	_, err = e.client.send(ctx, r)
	return err
}

// orNull is what a merge patch takes a field away with.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
