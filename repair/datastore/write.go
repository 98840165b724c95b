package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/repair"
)

// errUnknown means that a write may have been carried out, or may still be.
var errUnknown = errors.New("it is not known whether it was written")

// unknown is an [errUnknown] with a text of its own.
type unknown struct{ error }

// Is implements the interface of [errors.Is].
func (unknown) Is(target error) bool { return target == errUnknown }

// leftBehind returns an error that describes an object which a step leaves behind. If the
// last write may not have been carried out, the error only says that this is possible,
// and the next read decides.
func leftBehind(r blocks.Resource, name, state string, err error) error {
	if errors.Is(err, errUnknown) {
		return unknown{fmt.Errorf("it is possible that %s %s: %w", describe(r, name), state, detached(err))}
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
func (w *Writer) step(ctx context.Context, doing string, ref repair.ObjectRef, may, do func(context.Context, *object) error) error {
	o, err := w.evaluated(ctx, ref)
	return w.stepOn(ctx, doing+" "+describe(ref.Resource, ref.Name), o, err, may, do)
}

// stepOn is step for an object that was already read. err is the error of that read.
func (w *Writer) stepOn(ctx context.Context, doing string, o *object, err error, may, do func(context.Context, *object) error) error {
	if err == nil {
		err = may(ctx, o)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = w.inHand(ctx)
		defer cancel()
		err = do(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// inHand returns a context for finishing one object that does not end with ctx.
func (w *Writer) inHand(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.wait.step)
}

// The functions below return nil if the write was carried out, and [repair.ErrChanged] if it was
// not because the object has changed. errUnknown means that it may have been. After any other
// error, it was not carried out.

// write sends a request until its result is known. If an answer was lost, it reads the
// object to find out whether the write was carried out. seen decides from the current
// object (nil if missing) whether the write is settled, as done or with an error; doubt
// is true if an attempt may have been carried out. The request's own conditions ensure
// that it is carried out at most once, even if it is sent several times.
func (w *Writer) write(ctx context.Context, verb, doing string, res blocks.Resource, name string, send func(context.Context, Store) ([]byte, error), seen func(now *object, doubt bool) (settled bool, err error)) (*object, error) {
	s, err := w.store(res)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	doubt := false
	for try := 0; ; try++ {
		once, cancel := context.WithTimeout(ctx, w.wait.request)
		body, err := send(once, s)
		cancel()
		if verb == repair.VerbDelete && err == nil {
			return nil, nil
		}
		if err == nil {
			if now, bad := parseObject(res, body); bad == nil {
				return now, nil
			}
			err = errors.New("the answer is not an object")
		}
		a := responseOf(err)
		if a.Busy && w.pause(ctx, try, err) {
			continue
		}
		if verb == repair.VerbCreate && a.Refused && !doubt { // the current object does not matter
			if a.Exists {
				return nil, changedf("%s exists by now", describe(res, name))
			}
			return nil, fmt.Errorf("%s was refused: %w", doing, err)
		}
		doubt = doubt || !a.Refused
		now, readErr := w.get(ctx, res, name)
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
		case !w.pause(ctx, try, err):
			return nil, fmt.Errorf("%s: %w: %w", doing, errUnknown, err)
		}
	}
}

// patch writes an edit of an object and returns the resulting object.
func (w *Writer) patch(ctx context.Context, o *object, e *edit) (*object, error) {
	if e.empty() {
		return o, nil
	}
	doing := fmt.Sprintf("writing %s", o)
	patch, after, err := e.patch()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if err := w.record(ctx, repair.VerbPatch, o.resource, o.name(), o.raw, after, e.back); err != nil {
		return nil, err
	}
	return w.write(ctx, repair.VerbPatch, doing, o.resource, o.name(), func(ctx context.Context, s Store) ([]byte, error) {
		return s.Patch(ctx, o.resource, o.name(), patch)
	}, func(now *object, doubt bool) (bool, error) {
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

// create creates an object and returns it as stored. If an object of that name exists,
// the error is [repair.ErrChanged].
func (w *Writer) create(ctx context.Context, res blocks.Resource, tree map[string]any) (*object, error) {
	name := nameOf(tree)
	doing := "creating " + describe(res, name)
	content, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if err := w.record(ctx, repair.VerbCreate, res, name, nil, content, false); err != nil {
		return nil, err
	}
	return w.write(ctx, repair.VerbCreate, doing, res, name, func(ctx context.Context, s Store) ([]byte, error) {
		return s.Create(ctx, res, name, content)
	}, func(now *object, doubt bool) (bool, error) {
		switch {
		case now == nil:
			return false, nil
		case doubt && now.writtenBy(manager) && now.holds(tree):
			return true, nil
		}
		return true, changedf("%s exists by now", now)
	})
}

// markAndRemove carries out an edit that ends in the deletion of its object. Where Calico's
// clients mark an object deleted first (libcalico-go backend/k8s/resources, DeleteKVP), the mark
// is part of the edit, and other clients then treat the object as deleted. Otherwise the edit
// itself is not written. marked is true if an error leaves the object marked.
func (w *Writer) markAndRemove(ctx context.Context, e *edit) (marked bool, err error) {
	o := e.of
	if w.traits.SoftDeletes {
		if r := o.resource; r == blocks.Affinities && !w.native() {
			e.set("true", "spec", "deleted")
		} else {
			e.set(true, "spec", "deleted")
		}
		if o, err = w.patch(ctx, o, e); err != nil {
			return false, err
		}
	}
	err = w.removeOnly(ctx, o, !w.traits.SoftDeletes)
	return err != nil && w.traits.SoftDeletes, err
}

// remove deletes an object in the given version and waits until it no longer exists. A
// missing object is not an error.
func (w *Writer) remove(ctx context.Context, o *object) error { return w.removeOnly(ctx, o, false) }

// removeOnly is remove. If ours is set, an object that another client has deleted is
// [repair.ErrChanged].
func (w *Writer) removeOnly(ctx context.Context, o *object, ours bool) error {
	if err := w.record(ctx, repair.VerbDelete, o.resource, o.name(), o.raw, nil, false); err != nil {
		return err
	}
	_, err := w.write(ctx, repair.VerbDelete, fmt.Sprintf("deleting %s", o), o.resource, o.name(), func(ctx context.Context, s Store) ([]byte, error) {
		return nil, s.Delete(ctx, o.resource, o.name(), o.uid(), o.version())
	}, func(now *object, doubt bool) (bool, error) {
		switch {
		case ours && !doubt && (now == nil || now.uid() != o.uid()):
			return true, changedf("another client has deleted %s", o)
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
	return w.awaitDeletion(ctx, o)
}

// end is markAndRemove for an object of which an error can only leave the mark.
func (w *Writer) end(ctx context.Context, e *edit) error {
	marked, err := w.markAndRemove(ctx, e)
	if marked {
		return leftBehind(e.of.resource, e.of.name(), leftMarked, err)
	}
	return err
}

// awaitDeletion waits until a deleted object no longer exists. Only finalizers can delay
// that.
func (w *Writer) awaitDeletion(ctx context.Context, o *object) error {
	limit, cancel := context.WithTimeout(ctx, w.wait.deletion)
	defer cancel()
	for {
		now, err := w.get(ctx, o.resource, o.name())
		switch {
		case err != nil:
			return unknown{fmt.Errorf("the deletion of %s was requested, and it is not known whether it still exists: %w", o, err)}
		case now == nil, now.uid() != o.uid():
			return nil
		}
		if !request.Pause(limit, w.wait.poll, nil) {
			return fmt.Errorf("%s was deleted, and is still there because of its finalizers (%s): it disappears when their controllers remove them", o, now.finalizers())
		}
	}
}
