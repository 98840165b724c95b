package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Client evicts pods and cordons nodes, and sees to it that one run at a time does.
type Client struct {
	rest     *rest.RESTClient
	recorder repair.Recorder
	// retry is the pause between two tries of anything.
	retry time.Duration
	// term is how long the Lease of a run that died stands.
	term time.Duration
	// lease is the one that this client's run has; without one nothing is written.
	lease *lease
}

var _ repair.Workloads = (*Client)(nil)

// tries is how often a request is tried that gets no answer, or meets a change of
// something else, such as a node's heartbeat.
const tries = 5

// New prepares to write to the API server that cfg leads to; a nil recorder keeps no
// journal.
func New(cfg *rest.Config, recorder repair.Recorder) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &corev1.SchemeGroupVersion, "/api", scheme.Codecs.WithoutConversion()
	cfg.RateLimiter, cfg.QPS, cfg.Timeout = nil, -1, 30*time.Second
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("writing to pods and nodes: %w", err)
	}
	return &Client{rest: c, recorder: recorder, retry: 2 * time.Second, term: 10 * time.Second}, nil
}

// Evict evicts one pod, the one of that UID and no other of its name, through the
// Eviction API. That it is gone already, or going, is no error, and another in its place
// [repair.ErrChanged]; a budget that does not allow it is a [repair.RefusedEvictionError].
func (c *Client) Evict(ctx context.Context, namespace, name, uid string) error {
	key := blocks.Key{Namespace: namespace, Name: name}
	pod, err := c.pod(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("evicting pod %s: %w", key, err)
	case pod == nil || string(pod.UID) != uid:
		return fmt.Errorf("evicting pod %s: %w: it is gone, or another pod", key, repair.ErrChanged)
	case !pod.DeletionTimestamp.IsZero():
		return nil
	}
	if err := c.record(repair.VerbEvict, blocks.Pods, key.String(), pod, nil); err != nil {
		return err
	}
	body := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)},
	}
	for try := 1; ; try++ {
		sent, err := c.send(ctx, c.rest.Post().Namespace(namespace).Resource("pods").Name(name).SubResource("eviction").Body(body))
		switch {
		case !sent:
			return fmt.Errorf("evicting pod %s: %w", key, err)
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err):
			return fmt.Errorf("evicting pod %s: %w: %w", key, repair.ErrChanged, err)
		case apierrors.IsTooManyRequests(err):
			return &repair.RefusedEvictionError{Pod: key, Reason: budgetText(err), ForNow: true}
		case refused(err):
			return &repair.RefusedEvictionError{Pod: key, Reason: err.Error()}
		}
		// The answer was lost: what became of it is to be read.
		pod, readErr := c.pod(ctx, key)
		switch {
		case readErr != nil:
			return fmt.Errorf("evicting pod %s: it is not known whether it was: %w", key, errors.Join(err, readErr))
		case pod == nil || string(pod.UID) != uid || !pod.DeletionTimestamp.IsZero():
			return nil
		case try >= tries || !c.pause(ctx):
			return fmt.Errorf("evicting pod %s: %w", key, err)
		}
	}
}

// budgetText is what the API server says about a budget.
func budgetText(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return err.Error() + " " + cause.Message
	}
	return err.Error()
}

// Cordon makes a node unschedulable, with mark as our annotation. One that is so already
// is somebody's, and [repair.ErrChanged].
func (c *Client) Cordon(ctx context.Context, node repair.ObjectRef, mark string) error {
	return c.patchNode(ctx, "cordoning", node, func(n *corev1.Node) ([]operation, error) {
		switch {
		case n.Spec.Unschedulable && n.Annotations[blocks.OursAnnotation] == mark:
			return nil, nil
		case n.Spec.Unschedulable || n.Annotations[blocks.OursAnnotation] != "":
			return nil, fmt.Errorf("%w: node %s was cordoned meanwhile", repair.ErrChanged, n.Name)
		case n.Annotations == nil:
			return []operation{{"add", "/metadata/annotations", map[string]string{blocks.OursAnnotation: mark}}, {"add", "/spec/unschedulable", true}}, nil
		}
		return []operation{{"add", ourPath, mark}, {"add", "/spec/unschedulable", true}}, nil
	})
}

// Uncordon takes back what Cordon did, if the node carries the mark: the annotation, and
// the cordon if it still stands. One that others have made since stays, which is a
// [repair.KeptCordonError].
func (c *Client) Uncordon(ctx context.Context, node repair.ObjectRef, mark string) error {
	var kept *repair.KeptCordonError
	err := c.patchNode(ctx, "uncordoning", node, func(n *corev1.Node) ([]operation, error) {
		if n.Annotations[blocks.OursAnnotation] != mark {
			return nil, nil
		}
		ops := []operation{{"test", ourPath, mark}, {"remove", ourPath, nil}}
		if kept = othersCordon(n); kept == nil && n.Spec.Unschedulable {
			ops = append(ops, operation{"remove", "/spec/unschedulable", nil})
		}
		return ops, nil
	})
	if err == nil && kept != nil {
		return kept
	}
	return err
}

// othersCordon says whose the cordon of a node is that carries our mark, if it is somebody
// else's: who uncordons a node and cordons it again leaves our annotation in its place, and
// owns spec.unschedulable from then on (managedFields). nil if there is none, or it is ours.
func othersCordon(n *corev1.Node) *repair.KeptCordonError {
	for i := range n.ManagedFields {
		e := &n.ManagedFields[i]
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if !n.Spec.Unschedulable || e.Manager == blocks.FieldManager || e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if _, owns := owned.Spec["f:unschedulable"]; owns {
			kept := &repair.KeptCordonError{Node: n.Name, By: e.Manager}
			if e.Time != nil {
				kept.Since = e.Time.Time
			}
			return kept
		}
	}
	return nil
}

// ourPath is our annotation as a JSON pointer.
const ourPath = "/metadata/annotations/calico-audit~1consolidation"

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchNode changes a node in the version that change looked at. A node is written by
// its heartbeat at any time, so that one that was written is read and looked at again; none
// needed any more are no operations.
func (c *Client) patchNode(ctx context.Context, doing string, ref repair.ObjectRef, change func(*corev1.Node) ([]operation, error)) error {
	doing += " node " + ref.Name
	for try := 1; ; try++ {
		n := &corev1.Node{}
		err := c.get(ctx, n, "", "nodes", ref.Name)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", doing, err)
		case string(n.UID) != ref.UID:
			return fmt.Errorf("%s: %w: it is gone, or another node", doing, repair.ErrChanged)
		}
		ops, err := change(n)
		if err != nil || len(ops) == 0 {
			return err
		}
		patch, err := json.Marshal(append([]operation{{"test", "/metadata/uid", string(n.UID)}, {"test", "/metadata/resourceVersion", n.ResourceVersion}}, ops...))
		if err != nil {
			return err
		}
		if try == 1 {
			if err := c.record(repair.VerbPatch, blocks.Nodes, n.Name, n, patch); err != nil {
				return err
			}
		}
		sent, err := c.send(ctx, c.rest.Patch(types.JSONPatchType).Resource("nodes").Name(n.Name).Param("fieldManager", blocks.FieldManager).Body(patch))
		switch {
		case err == nil:
			return nil
		case !sent, refused(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err), try >= tries, !c.pause(ctx):
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// send sends a request once, right after the run's Lease was renewed; it is given up where
// another run may have that by then. sent is false if it was not sent, which is an error.
func (c *Client) send(ctx context.Context, request *rest.Request) (sent bool, err error) {
	if c.lease == nil {
		return false, errors.New("nothing is written without the Lease of a run that moves pods")
	}
	if err := c.lease.confirm(ctx); err != nil {
		return false, err
	}
	own, cancel := c.lease.holding(ctx)
	defer cancel()
	if err = plain(request.MaxRetries(0).Do(own).Error()); err != nil && own.Err() != nil && ctx.Err() == nil {
		err = context.Cause(own)
	}
	return true, err
}

// record takes down a change that is about to be sent.
func (c *Client) record(verb string, r blocks.Resource, name string, before runtime.Object, after json.RawMessage) error {
	if c.recorder == nil {
		return nil
	}
	raw, err := json.Marshal(before)
	if err == nil {
		err = c.recorder.Record(repair.Change{Verb: verb, Resource: r, Name: name, Before: raw, After: after})
	}
	if err != nil {
		return fmt.Errorf("nothing was written to %s %s, because the journal does not take it down: %w", r, name, err)
	}
	return nil
}

// pod reads a pod; nil if there is none.
func (c *Client) pod(ctx context.Context, key blocks.Key) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.get(ctx, pod, key.Namespace, "pods", key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// get reads an object, and tries again for a while where there is no answer.
func (c *Client) get(ctx context.Context, into runtime.Object, namespace, resource, name string) error {
	return c.try(ctx, into, func() *rest.Request {
		return c.rest.Get().Resource(resource).NamespaceIfScoped(namespace, namespace != "").Name(name)
	})
}

func (c *Client) try(ctx context.Context, into runtime.Object, request func() *rest.Request) error {
	for try := 1; ; try++ {
		err := request().MaxRetries(0).Do(ctx).Into(into)
		if err == nil || refused(err) || try >= tries || !c.pause(ctx) {
			return plain(err)
		}
	}
}

// plain takes the method and the address off an error of the HTTP client.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused reports whether an error says for certain that a request was not carried out.
func refused(err error) bool {
	var s *apierrors.StatusError
	return errors.As(err, &s) && s.ErrStatus.Code >= 400 && s.ErrStatus.Code < 500 &&
		s.ErrStatus.Code != http.StatusRequestTimeout && s.ErrStatus.Code != http.StatusTooManyRequests
}

// pause returns false if the context ended before another try is due.
func (c *Client) pause(ctx context.Context) bool {
	timer := time.NewTimer(c.retry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
