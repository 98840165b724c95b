package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// errUnknown means that a write may have been carried out, or may still be.
var errUnknown = errors.New("it is not known whether it was written")

// leftBehind returns an error that describes an object which a step leaves behind. If the
// last write may not have been carried out, the error only says that this is possible,
// and the next read decides.
func leftBehind(r blocks.Resource, name, state string, err error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("it is possible that %s %s: %w", describe(r, name), state, detached(err))
	}
	return &repair.LeftBehindError{Resource: r, Name: name, State: state, Err: err}
}

// leftMarked describes an object that was marked deleted but not deleted.
const leftMarked = "is left marked deleted, until Calico or a repair reads it next"

// detached returns the error without [repair.ErrChanged], because the step has left work
// for a repair.
func detached(err error) error { return errors.New(err.Error()) }

// step carries out one step on the evaluated object. It reads the object again, and may
// checks that its content permits the change. After the first write, the step no longer
// depends on ctx, so that it is not left half-done; it has its own time limit. If ctx has
// already ended, the step is not started.
func (k *Kubernetes) step(ctx context.Context, doing string, ref repair.ObjectRef, may, do func(context.Context, *object) error) error {
	o, err := k.evaluated(ctx, ref)
	return k.stepOn(ctx, doing+" "+describe(ref.Resource, ref.Name), o, err, may, do)
}

// stepOn is step for an object that was already read. err is the error of that read.
func (k *Kubernetes) stepOn(ctx context.Context, doing string, o *object, err error, may, do func(context.Context, *object) error) error {
	if err == nil {
		err = may(ctx, o)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = k.inHand(ctx)
		defer cancel()
		err = do(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// inHand returns a context for finishing one object that does not end with ctx.
func (k *Kubernetes) inHand(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), k.client.wait.step)
}

// The functions below have four results: done; [repair.ErrChanged], not written;
// errUnknown; any other error, not written.

// write sends a request until its result is known. If an answer was lost, it reads the
// object to find out whether the write was carried out. seen decides from the current
// object (nil if missing) whether the write is settled, as done or with an error; doubt
// is true if an attempt may have been carried out. The request's own conditions ensure
// that it is carried out at most once, even if it is sent several times.
func (k *Kubernetes) write(ctx context.Context, doing string, r request, res blocks.Resource, name string, seen func(now *object, doubt bool) (settled bool, err error)) (*object, error) {
	doubt := false
	for try := 0; ; try++ {
		body, err := k.client.send(ctx, r)
		if r.method == http.MethodDelete && (err == nil || absent(err, name)) {
			return nil, nil
		}
		if err == nil {
			if now, bad := parseObject(res, body); bad == nil {
				return now, nil
			}
			err = errors.New("the answer is not an object")
		}
		if throttled(err) && k.client.pause(ctx, try, err) {
			continue
		}
		if r.method == http.MethodPost && refused(err) && !doubt { // the current object does not matter
			if statusOf(err).Code == http.StatusConflict {
				return nil, changedf("%s exists by now", describe(res, name))
			}
			return nil, fmt.Errorf("%s was refused: %w", doing, err)
		}
		doubt = doubt || !refused(err)
		now, readErr := k.get(ctx, res, name)
		switch {
		case readErr != nil && doubt:
			return nil, fmt.Errorf("%s: %w: %w; and %w", doing, errUnknown, err, readErr)
		case readErr != nil:
			return nil, fmt.Errorf("%s: %w; and %w", doing, err, readErr)
		}
		if settled, bad := seen(now, doubt); settled {
			return now, bad
		}
		switch {
		case !doubt:
			return nil, fmt.Errorf("%s was refused: %w", doing, err)
		case !k.client.pause(ctx, try, err):
			return nil, fmt.Errorf("%s: %w: %w", doing, errUnknown, err)
		}
	}
}

// patch writes an edit of an object and returns the resulting object.
func (k *Kubernetes) patch(ctx context.Context, o *object, e *edit) (*object, error) {
	if e.empty() {
		return o, nil
	}
	doing := fmt.Sprintf("writing %s", o)
	patch, after, err := e.patch()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if err := k.record(ctx, repair.VerbPatch, o.resource, o.name(), o.raw, after, e.back); err != nil {
		return nil, err
	}
	r := request{method: http.MethodPatch, path: k.path(o.resource, o.name()), query: asManager(), contentType: string(types.JSONPatchType), body: patch}
	return k.write(ctx, doing, r, o.resource, o.name(), func(now *object, doubt bool) (bool, error) {
		meant, bad := parseTree(after)
		switch {
		case now == nil:
			return true, changedf("%s does not exist any more", o)
		case now.uid() != o.uid():
			return true, changedf("%s was deleted and created again", o)
		case now.version() == o.version():
			return false, nil
		case doubt && bad == nil && now.sameContent(meant):
			return true, nil // it was carried out, but the answer was lost
		}
		return true, changedf("another client has written %s", o)
	})
}

// asManager returns the query with the field manager.
func asManager() url.Values { return url.Values{"fieldManager": {manager}} }

// create creates an object and returns it as stored. If an object of that name exists,
// the error is [repair.ErrChanged].
func (k *Kubernetes) create(ctx context.Context, res blocks.Resource, tree map[string]any) (*object, error) {
	name := nameOf(tree)
	doing := "creating " + describe(res, name)
	content, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if err := k.record(ctx, repair.VerbCreate, res, name, nil, content, false); err != nil {
		return nil, err
	}
	r := request{method: http.MethodPost, path: k.path(res, strings.TrimSuffix(name, textOf(tree, "metadata", "name"))), query: asManager(), contentType: "application/json", body: content}
	return k.write(ctx, doing, r, res, name, func(now *object, doubt bool) (bool, error) {
		switch {
		case now == nil:
			return false, nil
		case doubt && now.writtenBy(manager) && now.holds(tree):
			return true, nil
		}
		return true, changedf("%s exists by now", now)
	})
}

// mark marks an object deleted, as Calico's clients do before a deletion (libcalico-go
// backend/k8s/resources, DeleteKVP). The write is conditional on the version. Other
// clients then treat the object as deleted.
func (k *Kubernetes) mark(ctx context.Context, o *object) (*object, error) {
	e := newEdit(o)
	k.setMark(e, o.resource)
	return k.patch(ctx, o, e)
}

// setMark sets spec.deleted with the API group's type.
func (k *Kubernetes) setMark(e *edit, r blocks.Resource) {
	if r == blocks.Affinities && !k.native() {
		e.set("true", "spec", "deleted")
		return
	}
	e.set(true, "spec", "deleted")
}

// remove deletes an object in the given version and waits until it no longer exists. A
// missing object is not an error.
func (k *Kubernetes) remove(ctx context.Context, o *object) error {
	if err := k.record(ctx, repair.VerbDelete, o.resource, o.name(), o.raw, nil, false); err != nil {
		return err
	}
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: new(types.UID(o.uid())), ResourceVersion: new(o.version())},
	})
	if err != nil {
		return err
	}
	r := request{method: http.MethodDelete, path: k.path(o.resource, o.name()), contentType: "application/json", body: body}
	_, err = k.write(ctx, fmt.Sprintf("deleting %s", o), r, o.resource, o.name(), func(now *object, _ bool) (bool, error) {
		switch {
		case now == nil, now.uid() != o.uid(), now.deleting():
			return true, nil
		case now.version() != o.version():
			return true, changedf("another client has written %s", o)
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return k.awaitDeletion(ctx, o)
}

// markAndRemove marks an object deleted together with an edit, and deletes it.
func (k *Kubernetes) markAndRemove(ctx context.Context, o *object, e *edit) error {
	k.setMark(e, o.resource)
	marked, err := k.patch(ctx, o, e)
	if err != nil {
		return err
	}
	if err := k.remove(ctx, marked); err != nil {
		return leftBehind(o.resource, o.name(), leftMarked, err)
	}
	return nil
}

// awaitDeletion waits until a deleted object no longer exists. Only finalizers can delay
// that.
func (k *Kubernetes) awaitDeletion(ctx context.Context, o *object) error {
	limit, cancel := context.WithTimeout(ctx, k.client.wait.deletion)
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
			return fmt.Errorf("%s was deleted, and is still there because of its finalizers (%s): it goes when the controllers that set them remove them", o, now.finalizers())
		}
	}
}
