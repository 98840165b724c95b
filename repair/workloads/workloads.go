package workloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/repair"
)

// Client evicts pods and cordons nodes. Its Lease ensures that only one run at a time
// does so.
type Client struct {
	rest     *rest.RESTClient
	recorder repair.Recorder
	// retry is the pause between attempts.
	retry time.Duration
	// term is how long the Lease of a dead run remains valid.
	term time.Duration
	// lease is held by this client's run. Without it, nothing is written.
	lease *lease
}

var _ repair.Workloads = (*Client)(nil)

// tries is how often a request is attempted if it gets no answer, or conflicts with
// another write such as a node's heartbeat.
const tries = 5

// New returns a client for the API server in cfg. A nil recorder keeps no journal.
func New(cfg *rest.Config, recorder repair.Recorder) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath, cfg.Timeout = &corev1.SchemeGroupVersion, "/api", 30*time.Second
	c, err := request.NewClient(cfg, request.Options{})
	if err != nil {
		return nil, fmt.Errorf("writing to pods and nodes: %w", err)
	}
	return &Client{rest: c, recorder: recorder, retry: 2 * time.Second, term: 10 * time.Second}, nil
}

// Evict evicts the pod with the given UID through the Eviction API. A missing or
// terminating pod is not an error. If another pod has the name, the error is
// [repair.ErrChanged]. If a budget does not allow the eviction, it is a
// [repair.RefusedEvictionError].
func (c *Client) Evict(ctx context.Context, namespace, name, uid string) error {
	key := blocks.Key{Namespace: namespace, Name: name}
	pod, err := c.pod(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("evicting pod %s: %w", key, err)
	case pod == nil || string(pod.UID) != uid:
		return fmt.Errorf("evicting pod %s: %w: the pod no longer exists, or another one has its name", key, repair.ErrChanged)
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
		// The answer was lost, so read the pod.
		pod, readErr := c.pod(ctx, key)
		switch {
		case readErr != nil:
			return fmt.Errorf("evicting pod %s: the outcome is not known: %w", key, errors.Join(err, readErr))
		case pod == nil || string(pod.UID) != uid || !pod.DeletionTimestamp.IsZero():
			return nil
		case try >= tries || !c.pause(ctx):
			return fmt.Errorf("evicting pod %s: %w", key, err)
		}
	}
}

// budgetText returns the API server's message about a budget.
func budgetText(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return err.Error() + " " + cause.Message
	}
	return err.Error()
}

// Cordon makes a node unschedulable, with mark in calico-audit's annotation. If another
// client has already cordoned the node, the error is [repair.ErrChanged].
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

// Uncordon reverts Cordon if the node has the mark: it removes the annotation and the
// cordon. If another client has cordoned the node since, that cordon stays and the error
// is a [repair.KeptCordonError].
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

// othersCordon returns the manager of a node's cordon if the node carries our mark but
// another client owns the cordon, and nil otherwise. A client that uncordons the node and
// cordons it again leaves our annotation, but then owns spec.unschedulable
// (managedFields).
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

// ourPath is calico-audit's annotation as a JSON pointer.
const ourPath = "/metadata/annotations/calico-audit~1consolidation"

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchNode changes a node in the version that change has inspected. Heartbeats write a
// node at any time, so on a conflict it is read and inspected again. Without operations,
// it writes nothing.
func (c *Client) patchNode(ctx context.Context, doing string, ref repair.ObjectRef, change func(*corev1.Node) ([]operation, error)) error {
	doing += " node " + ref.Name
	for try := 1; ; try++ {
		n := &corev1.Node{}
		err := c.get(ctx, n, "", "nodes", ref.Name)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", doing, err)
		case string(n.UID) != ref.UID:
			return fmt.Errorf("%s: %w: the node no longer exists, or another one has its name", doing, repair.ErrChanged)
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

// send sends a request once, right after a renewal of the run's Lease. The request is
// cancelled when another run may hold the Lease. sent is false, with an error, if the
// request was not sent.
func (c *Client) send(ctx context.Context, r *rest.Request) (sent bool, err error) {
	if c.lease == nil {
		return false, errors.New("nothing is written without the Lease of a run that moves pods")
	}
	if err := c.lease.confirm(ctx); err != nil {
		return false, err
	}
	own, cancel := c.lease.holding(ctx)
	defer cancel()
	if err = request.WithoutURL(r.MaxRetries(0).Do(own).Error()); err != nil && own.Err() != nil && ctx.Err() == nil {
		err = context.Cause(own)
	}
	return true, err
}

// record records a change before it is sent.
func (c *Client) record(verb string, r blocks.Resource, name string, before runtime.Object, after json.RawMessage) error {
	if c.recorder == nil {
		return nil
	}
	raw, err := json.Marshal(before)
	if err == nil {
		err = c.recorder.Record(repair.Change{Verb: verb, Resource: r, Name: name, Before: raw, After: after})
	}
	if err != nil {
		return fmt.Errorf("nothing was written to %s %s, because the journal could not record it: %w", r, name, err)
	}
	return nil
}

// pod reads a pod. It returns nil if the pod does not exist.
func (c *Client) pod(ctx context.Context, key blocks.Key) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.get(ctx, pod, key.Namespace, "pods", key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// get reads an object. It retries for a while if no answer comes.
func (c *Client) get(ctx context.Context, into runtime.Object, namespace, resource, name string) error {
	return c.try(ctx, into, func() *rest.Request {
		return c.rest.Get().Resource(resource).NamespaceIfScoped(namespace, namespace != "").Name(name)
	})
}

func (c *Client) try(ctx context.Context, into runtime.Object, ask func() *rest.Request) error {
	for try := 1; ; try++ {
		err := ask().MaxRetries(0).Do(ctx).Into(into)
		if err == nil || refused(err) || try >= tries || !c.pause(ctx) {
			return request.WithoutURL(err)
		}
	}
}

// refused reports whether an error proves that a request was not carried out.
func refused(err error) bool {
	var s *apierrors.StatusError
	return errors.As(err, &s) && s.ErrStatus.Code >= 400 && s.ErrStatus.Code < 500 &&
		s.ErrStatus.Code != http.StatusRequestTimeout && s.ErrStatus.Code != http.StatusTooManyRequests
}

// pause waits before a retry. It returns false if the context ended first.
func (c *Client) pause(ctx context.Context) bool { return request.Pause(ctx, c.retry, nil) }
