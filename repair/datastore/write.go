package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// errUnknown says that it is not known whether a write has taken place, or will.
var errUnknown = errors.New("it is not known whether it was written")

// leftBehind says how a step leaves an object, and why. Where it is not known whether
// the last write took place, reading again tells, and no more than that is said.
func leftBehind(r blocks.Resource, name, state string, err error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("%s may be so that it %s: %w", describe(r, name), state, detached(err))
	}
	return &repair.LeftBehindError{Resource: r, Name: name, State: state, Err: err}
}

// leftMarked is how an object is left that was marked deleted, and not deleted.
const leftMarked = "is left marked deleted, until Calico or a repair reads it next"

// detached is an error that is not [repair.ErrChanged], for an end that left
// something to be put right.
func detached(err error) error { return errors.New(err.Error()) }

// The writes of this file end in one of four ways: done; [repair.ErrChanged], and
// not written; errUnknown; any other error, and not written.

// patch writes a change of an object and returns the object as it is then. The
// request may be sent several times: its tests make sure that it is carried out at
// most once.
func (k *Kubernetes) patch(ctx context.Context, o *object, e *edit) (*object, error) {
	if e.err == nil && e.empty() {
		return o, nil
	}
	patch, after, err := e.patch()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", o, err)
	}
	if err := k.record(repair.VerbPatch, o.resource, o.name(), o.raw, after, e.back); err != nil {
		return nil, err
	}
	r := request{
		method: http.MethodPatch, path: k.path(o.resource, o.name()), query: asManager(),
		contentType: "application/json-patch+json", body: patch,
	}
	doubt := false // an earlier try may have been carried out
	for try := 0; ; try++ {
		body, err := k.client.send(ctx, r)
		if err == nil {
			if now, bad := parseObject(o.resource, body); bad == nil {
				return now, nil
			}
			err = errors.New("the answer is no object")
		}
		if throttled(err) && k.client.pause(ctx, try, err) {
			continue
		}
		doubt = doubt || !refused(err)
		now, readErr := k.get(ctx, o.resource, o.name())
		switch {
		case readErr != nil && doubt:
			return nil, fmt.Errorf("writing %s: %w: %w; and %w", o, errUnknown, err, readErr)
		case readErr != nil:
			return nil, fmt.Errorf("writing %s: %w; and %w", o, err, readErr)
		case now == nil:
			return nil, changedf("%s does not exist any more", o)
		case now.uid() != o.uid():
			return nil, changedf("%s was deleted and made anew", o)
		case now.version() == o.version() && !doubt:
			return nil, fmt.Errorf("writing %s was refused: %w", o, err)
		case now.version() == o.version():
			if !k.client.pause(ctx, try, err) {
				return nil, fmt.Errorf("writing %s: %w: %w", o, errUnknown, err)
			}
		case doubt && now.sameContent(e.tree):
			return now, nil // it was carried out, and the answer lost
		default:
			return nil, changedf("%s was written by somebody else", o)
		}
	}
}

// asManager is the query by which the API server learns who writes.
func asManager() url.Values { return url.Values{"fieldManager": {manager}} }

// create creates an object and returns it as stored. One of that name that exists
// already is [repair.ErrChanged].
func (k *Kubernetes) create(ctx context.Context, res blocks.Resource, tree map[string]any) (*object, error) {
	name, _ := dig(tree, "metadata", "name")
	what := describe(res, fmt.Sprint(name))
	content, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", what, err)
	}
	if err := k.record(repair.VerbCreate, res, fmt.Sprint(name), nil, content, false); err != nil {
		return nil, err
	}
	r := request{method: http.MethodPost, path: k.path(res, ""), query: asManager(), contentType: "application/json", body: content}
	doubt := false
	for try := 0; ; try++ {
		body, err := k.client.send(ctx, r)
		if err == nil {
			if now, bad := parseObject(res, body); bad == nil {
				return now, nil
			}
			err = errors.New("the answer is no object")
		}
		if throttled(err) && k.client.pause(ctx, try, err) {
			continue
		}
		if s := statusOf(err); s != nil && s.Code == http.StatusConflict && !doubt {
			return nil, changedf("%s exists by now", what)
		}
		if refused(err) && !doubt {
			return nil, fmt.Errorf("creating %s was refused: %w", what, err)
		}
		doubt = true
		now, readErr := k.get(ctx, res, fmt.Sprint(name))
		switch {
		case readErr != nil:
			return nil, fmt.Errorf("creating %s: %w: %w; and %w", what, errUnknown, err, readErr)
		case now == nil:
			if !k.client.pause(ctx, try, err) {
				return nil, fmt.Errorf("creating %s: %w: %w", what, errUnknown, err)
			}
		case now.writtenBy(manager) && now.holds(tree):
			return now, nil
		default:
			return nil, changedf("%s exists by now", what)
		}
	}
}

// mark marks an object deleted, as Calico's clients do before they delete it: a
// write that is conditional on the version, and that makes everybody who reads the
// object see that it is gone (libcalico-go backend/k8s/resources, DeleteKVP).
func (k *Kubernetes) mark(ctx context.Context, o *object) (*object, error) {
	e := newEdit(o)
	k.setMark(e, o.resource)
	return k.patch(ctx, o, e)
}

// setMark sets spec.deleted, in the type that the API group has for it.
func (k *Kubernetes) setMark(e *edit, r blocks.Resource) {
	if r == blocks.Affinities && !k.native() {
		e.set("true", "spec", "deleted")
		return
	}
	e.set(true, "spec", "deleted")
}

// remove deletes an object in the version at hand and waits until it is gone. One
// that is gone already is no error.
func (k *Kubernetes) remove(ctx context.Context, o *object) error {
	if err := k.record(repair.VerbDelete, o.resource, o.name(), o.raw, nil, false); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": o.uid(), "resourceVersion": o.version()},
	})
	if err != nil {
		return err
	}
	r := request{method: http.MethodDelete, path: k.path(o.resource, o.name()), contentType: "application/json", body: body}
	doubt := false
	for try := 0; ; try++ {
		_, err := k.client.send(ctx, r)
		if err == nil || absent(err, o.name()) {
			return k.awaitGone(ctx, o)
		}
		if throttled(err) && k.client.pause(ctx, try, err) {
			continue
		}
		doubt = doubt || !refused(err)
		now, readErr := k.get(ctx, o.resource, o.name())
		switch {
		case readErr != nil && doubt:
			return fmt.Errorf("deleting %s: %w: %w; and %w", o, errUnknown, err, readErr)
		case readErr != nil:
			return fmt.Errorf("deleting %s: %w; and %w", o, err, readErr)
		case now == nil, now.uid() != o.uid():
			return nil
		case now.deleting():
			return k.awaitGone(ctx, o)
		case now.version() != o.version():
			return changedf("%s was written by somebody else", o)
		case !doubt:
			return fmt.Errorf("deleting %s was refused: %w", o, err)
		case !k.client.pause(ctx, try, err):
			return fmt.Errorf("deleting %s: %w: %w", o, errUnknown, err)
		}
	}
}

// awaitGone waits until an object that was deleted is gone. Only finalizers keep it.
func (k *Kubernetes) awaitGone(ctx context.Context, o *object) error {
	limit, cancel := context.WithTimeout(ctx, k.client.wait.gone)
	defer cancel()
	for {
		now, err := k.get(ctx, o.resource, o.name())
		switch {
		case err != nil:
			return fmt.Errorf("%s was deleted, and it is not known whether it is gone: %w", o, err)
		case now == nil, now.uid() != o.uid():
			return nil
		}
		if !sleep(limit, k.client.wait.poll) {
			return fmt.Errorf("%s was deleted, and is still there because of its finalizers (%s): it goes when whoever set them takes them away", o, now.finalizers())
		}
	}
}
