package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What became of writing an Event.
type outcome int

const (
	done   outcome = iota // written, or put off
	failed                // the API server cannot be reached, or is too busy
	lost                  // there are other Events than was thought
)

// went records how a request went. It returns false, too, if ctx ended, which is no
// trouble.
func (w *Writer) went(ctx context.Context, x trouble, where string, err error, args ...any) bool {
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		w.failed.Add(1)
	}
	w.troubles.note(x, where, err, args...)
	return err == nil
}

// write writes one Event: a new one, or the one of its name once more.
func (w *Writer) write(ctx context.Context, b *board, t *task) outcome {
	r := b.records[t.fingerprint]
	if r == nil {
		r = &record{}
		b.records[t.fingerprint] = r
	}
	about := nodeReference(t.node)
	if t.node == "" {
		common, _ := w.target(ctx) // why there is none has been said
		switch {
		case ctx.Err() != nil:
			return failed
		case common == nil:
			w.putOff(r)
			return done
		}
		about = *common
	}
	v := w.compose(t, about)
	k := key{v.Namespace, v.Name}
	count, exists := b.counts[k]
	v.Count = count + 1
	err := w.send(ctx, v, exists)
	switch {
	case err == nil:
		w.written.Add(1)
		b.counts[k] = v.Count
		t.last = v.LastTimestamp.Time
		b.records[t.fingerprint] = &t.record
		w.troubles.note(troubleWrite, "", nil)
		if r.tries > 0 {
			w.troubles.note(troubleRefused, "", nil)
		}
		w.conflict = key{}
		return done
	case ctx.Err() != nil:
		return failed
	case exists && apierrors.IsNotFound(err):
		delete(b.counts, k) // it has expired, or somebody deleted it
		return done
	case !exists && apierrors.IsAlreadyExists(err):
		if w.conflict == k { // it exists, and does not say that it is ours
			b.counts[k] = 1
			return done
		}
		w.conflict = k
		return lost // made by a request whose answer was lost
	}
	if refused(err) {
		// It may be about this one Event: let others have their turn.
		w.went(ctx, troubleRefused, "", err, "namespace", v.Namespace, "event", v.Name)
		w.putOff(r)
		return done
	}
	w.went(ctx, troubleWrite, "", err)
	return failed
}

// refused reports whether the API server does not take an Event for what is in it, or
// for where it is to be.
func refused(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	switch code := s.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// putOff has an Event wait longer each time that it is refused.
func (w *Writer) putOff(r *record) {
	r.retry = time.Now().Add(min(w.pace.most, w.pace.backoff<<min(r.tries, 20)))
	r.tries++
}

func (w *Writer) compose(t *task, about corev1.ObjectReference) *corev1.Event {
	now := metav1.Now()
	v := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(&about), Name: nameOf(t.fingerprint, t.severity),
			Labels:      map[string]string{labelManagedBy: component, labelFingerprint: t.fingerprint},
			Annotations: map[string]string{noteCheck: t.check, noteSubject: t.subject, noteSeverity: t.severity.String(), noteLease: w.leaseNote()},
		},
		InvolvedObject: about, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component, ReportingInstance: cut(w.instance, 128),
	}
	if t.what == tellEnd {
		v.Type, v.Action = corev1.EventTypeNormal, "Resolve"
		v.Reason, v.Message = endMessage(t)
	} else {
		v.Type, v.Action = typeOf(t.severity), "Audit"
		v.Reason, v.Message = reasonOf(t.check), findingMessage(t.finding)
	}
	return v
}

// send creates an Event, or writes the one of its name once more. A patch names all
// that may differ, so that it may be sent again. An Event that exists keeps its first
// time.
func (w *Writer) send(ctx context.Context, v *corev1.Event, exists bool) error {
	ctx, cancel := context.WithTimeout(ctx, w.pace.request)
	defer cancel()
	client := w.events.Events(v.Namespace)
	if !exists {
		_, err := client.Create(ctx, v, metav1.CreateOptions{FieldManager: component})
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": v.Labels, "annotations": v.Annotations},
		"involvedObject": map[string]any{
			"apiVersion": v.InvolvedObject.APIVersion, "kind": v.InvolvedObject.Kind, "name": v.InvolvedObject.Name,
			"namespace": orNull(v.InvolvedObject.Namespace), "uid": orNull(string(v.InvolvedObject.UID)),
		},
		"type": v.Type, "reason": v.Reason, "message": v.Message, "action": v.Action,
		"count": v.Count, "lastTimestamp": v.LastTimestamp, "reportingInstance": v.ReportingInstance,
	})
	if err != nil {
		return fmt.Errorf("writing an Event: %w", err)
	}
	_, err = client.Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: component})
	return err
}

// orNull is what a merge patch takes a field away with.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
