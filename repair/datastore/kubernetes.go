package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
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

// Kubernetes writes to an API server. It is a [repair.Writer] and safe for concurrent
// use.
type Kubernetes struct {
	client   *client
	group    string
	recorder repair.Recorder
}

var _ repair.Writer = (*Kubernetes)(nil)

// New returns a writer for the API server in cfg. group is the API group of Calico's
// objects in the evaluated snapshot ([blocks.Cluster.APIGroup]). The rate limit in cfg is
// ignored.
func New(cfg *rest.Config, group string, opts Options) (*Kubernetes, error) {
	if group != decode.GroupCRD && group != decode.GroupNative {
		return nil, fmt.Errorf("writing to Calico's datastore: %q is none of Calico's API groups", group)
	}
	c, err := newClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("writing to Calico's datastore: %w", err)
	}
	return &Kubernetes{client: c, group: group, recorder: opts.Recorder}, nil
}

// native reports whether the objects are in the newer API group.
func (k *Kubernetes) native() bool { return k.group == decode.GroupNative }

// path returns the path of an object, or of all objects in a namespace for a name that
// ends in a slash.
func (k *Kubernetes) path(r blocks.Resource, name string) string {
	kind, namespace := decode.KindOf(r), ""
	if kind.Namespaced {
		namespace, name, _ = strings.Cut(name, "/")
	}
	p := kind.Path(k.group, namespace)
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// get reads an object from the API server's storage. It returns nil if the object does
// not exist. After an error, that is unknown.
func (k *Kubernetes) get(ctx context.Context, r blocks.Resource, name string) (*object, error) {
	body, err := k.client.read(ctx, request{method: "GET", path: k.path(r, name)})
	if absent(err, name) {
		return nil, nil
	}
	var o *object
	if err == nil {
		o, err = parseObject(r, body)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", describe(r, name), err)
	}
	return o, nil
}

// evaluated reads the object that was evaluated. It returns [repair.ErrChanged] if the
// object was replaced or written since, or is being deleted.
func (k *Kubernetes) evaluated(ctx context.Context, ref repair.ObjectRef) (*object, error) {
	o, err := k.same(ctx, ref)
	if err == nil && o.version() != ref.ResourceVersion {
		return nil, changedf("%s was written: its resourceVersion is %s and was %s", o, o.version(), ref.ResourceVersion)
	}
	return o, err
}

// same is like evaluated, but accepts any resourceVersion.
func (k *Kubernetes) same(ctx context.Context, ref repair.ObjectRef) (*object, error) {
	if ref.Name == "" || ref.UID == "" || ref.ResourceVersion == "" {
		return nil, fmt.Errorf("%s is not pinned by UID and resourceVersion", describe(ref.Resource, ref.Name))
	}
	o, err := k.get(ctx, ref.Resource, ref.Name)
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

func isLeft(err error) bool {
	var left *repair.LeftBehindError
	return errors.As(err, &left)
}

type stepsKey struct{}

// ofSteps returns a context for writes that belong to several steps. Without it, a write
// belongs to the current step.
func ofSteps(ctx context.Context, ids ...string) context.Context {
	return context.WithValue(ctx, stepsKey{}, ids)
}

// record records a change before it is sent, once for each step.
func (k *Kubernetes) record(ctx context.Context, verb string, r blocks.Resource, name string, before, after []byte, back bool) error {
	if k.recorder == nil {
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
		if err := k.recorder.Record(c); err != nil {
			return fmt.Errorf("nothing was written to %s, because the journal could not record it: %w", describe(r, name), err)
		}
	}
	return nil
}
