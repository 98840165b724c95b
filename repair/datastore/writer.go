package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/repair"
)

// manager is the field manager of this writer in an object's managedFields.
const manager = blocks.FieldManager

// Options are optional settings of a writer.
type Options struct {
	// Recorder records each change before it is sent; nil keeps no journal.
	Recorder repair.Recorder
}

// Writer carries out steps. It is a [repair.Writer] and safe for concurrent use.
type Writer struct {
	// calico keeps Calico's objects, and others all other objects; nil if there is no
	// Kubernetes.
	calico, others Store
	traits         Traits
	recorder       repair.Recorder
	wait           waits
}

var _ repair.Writer = (*Writer)(nil)

// NewWriter returns a writer of Calico's objects in one store and of all other objects in a second
// one, which may be nil.
func NewWriter(calico, others Store, opts Options) *Writer {
	return &Writer{calico: calico, others: others, traits: calico.Traits(), recorder: opts.Recorder, wait: defaultWaits}
}

// waits are the writer's timeouts and pauses. Tests shorten them.
type waits struct {
	// step limits the time of a step after its first write was sent.
	step time.Duration
	// request limits one request.
	request time.Duration
	// retry lists the pauses before the retries of a request.
	retry []time.Duration
	// deletion limits the wait for an object with finalizers to disappear; poll is the
	// interval of the checks.
	deletion, poll time.Duration
	// claim is how long Whereabouts may act on a reservation that it has read.
	claim time.Duration
}

var defaultWaits = waits{
	step: 90 * time.Second, request: 30 * time.Second,
	retry: []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
	},
	deletion: 10 * time.Second, poll: 100 * time.Millisecond,
	claim: repair.WhereaboutsRequest,
}

// pause waits before a retry. It returns false after the last retry.
func (w *Writer) pause(ctx context.Context, try int, err error) bool {
	if try >= len(w.wait.retry) {
		return false
	}
	return request.Pause(ctx, max(w.wait.retry[try], min(responseOf(err).After, 5*time.Second)), nil)
}

// native reports whether the objects are in the newer API group.
func (w *Writer) native() bool { return w.traits.Group == decode.GroupNative }

// store returns the store of a resource.
func (w *Writer) store(r blocks.Resource) (Store, error) {
	switch kind := decode.KindOf(r); {
	case kind != nil && kind.OfCalico():
		return w.calico, nil
	case w.others == nil:
		return nil, fmt.Errorf("%s are in Kubernetes, and no cluster is configured", r)
	}
	return w.others, nil
}

// read sends a request that changes nothing. It retries for a while if no answer comes or a
// later answer may differ.
func read[T any](ctx context.Context, w *Writer, r blocks.Resource, send func(context.Context, Store) (T, error)) (T, error) {
	s, err := w.store(r)
	if err != nil {
		return *new(T), err
	}
	for try := 0; ; try++ {
		once, cancel := context.WithTimeout(ctx, w.wait.request)
		out, err := send(once, s)
		cancel()
		if a := responseOf(err); err == nil || a.Refused && !a.Busy || !w.pause(ctx, try, err) {
			return out, err
		}
	}
}

// get reads an object. It returns nil if the object does not exist. After an error, that is
// unknown.
func (w *Writer) get(ctx context.Context, r blocks.Resource, name string) (*object, error) {
	body, err := read(ctx, w, r, func(ctx context.Context, s Store) ([]byte, error) { return s.Get(ctx, r, name) })
	var o *object
	if err == nil && body != nil {
		o, err = parseObject(r, body)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(r, name), err)
	}
	return o, nil
}

// list calls each for the objects of a list.
func (w *Writer) list(ctx context.Context, r blocks.Resource, q Query, each func(json.RawMessage) error) error {
	for {
		type page struct {
			objects []json.RawMessage
			next    string
		}
		p, err := read(ctx, w, r, func(ctx context.Context, s Store) (p page, err error) {
			p.objects, p.next, err = s.List(ctx, r, q)
			return p, err
		})
		if err != nil {
			return err
		}
		for _, o := range p.objects {
			if err := each(o); err != nil {
				return err
			}
		}
		if q.Next = p.next; q.Next == "" {
			return nil
		}
	}
}

// evaluated reads the object that was evaluated. It returns [repair.ErrChanged] if the
// object was replaced or written since, or is being deleted.
func (w *Writer) evaluated(ctx context.Context, ref repair.ObjectRef) (*object, error) {
	o, err := w.same(ctx, ref)
	if err == nil && o.version() != ref.ResourceVersion {
		return nil, changedf("%s was written: its resourceVersion is %s and was %s", o, o.version(), ref.ResourceVersion)
	}
	return o, err
}

// same is like evaluated, but accepts any resourceVersion.
func (w *Writer) same(ctx context.Context, ref repair.ObjectRef) (*object, error) {
	if ref.Name == "" || ref.UID == "" || ref.ResourceVersion == "" {
		return nil, fmt.Errorf("%s is not pinned by UID and resourceVersion", describe(ref.Resource, ref.Name))
	}
	o, err := w.get(ctx, ref.Resource, ref.Name)
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, changedf("%s does not exist any more", describe(ref.Resource, ref.Name))
	case o.uid() != ref.UID:
		return nil, changedf("%s was deleted and created again", o)
	case o.deleting():
		return nil, changedf("%s is being deleted", o)
	}
	return o, nil
}

// changedf returns a [repair.ErrChanged] with a reason.
func changedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", repair.ErrChanged, fmt.Sprintf(format, args...))
}

func isChanged(err error) bool { return errors.Is(err, repair.ErrChanged) }

// isLeft reports whether an error describes an object that a step leaves behind, or may leave.
func isLeft(err error) bool {
	var left *repair.LeftBehindError
	return errors.As(err, &left) || errors.As(err, new(unknown))
}

type stepsKey struct{}

// ofSteps returns a context for writes that belong to several steps. Without it, a write
// belongs to the current step.
func ofSteps(ctx context.Context, ids ...string) context.Context {
	return context.WithValue(ctx, stepsKey{}, ids)
}

// record records a change before it is sent, once for each step.
func (w *Writer) record(ctx context.Context, verb string, r blocks.Resource, name string, before, after []byte, back bool) error {
	if w.recorder == nil {
		return nil
	}
	steps, _ := ctx.Value(stepsKey{}).([]string)
	if len(steps) == 0 {
		steps = []string{""}
	}
	for _, step := range steps {
		c := repair.Change{Step: step, Verb: verb, Resource: r, Name: name, Back: back}
		if before != nil {
			c.Before = json.RawMessage(before)
		}
		if after != nil {
			c.After = json.RawMessage(after)
		}
		if err := w.recorder.Record(c); err != nil {
			return fmt.Errorf("nothing was written to %s, because the journal could not record it: %w", describe(r, name), err)
		}
	}
	return nil
}
