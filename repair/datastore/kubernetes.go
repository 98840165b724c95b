package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/repair"
)

// Kubernetes is the [Store] of an API server.
type Kubernetes struct {
	client *client
	group  string
}

// NewKubernetes returns the store of an API server. group is the API group of Calico's objects;
// empty if they are not there. The rate limit in cfg is ignored.
func NewKubernetes(cfg *rest.Config, group string) (*Kubernetes, error) {
	c, err := request.NewClient(cfg, request.Options{})
	if err != nil {
		return nil, fmt.Errorf("writing to Kubernetes: %w", err)
	}
	return &Kubernetes{client: &client{c}, group: group}, nil
}

// New returns a writer for the API server in cfg. group is the API group of Calico's
// objects in the evaluated snapshot ([blocks.Cluster.APIGroup]).
func New(cfg *rest.Config, group string, opts Options) (*Writer, error) {
	if group != decode.GroupCRD && group != decode.GroupNative {
		return nil, fmt.Errorf("writing to Calico's datastore: %q is not an API group of Calico", group)
	}
	k, err := NewKubernetes(cfg, group)
	if err != nil {
		return nil, err
	}
	return NewWriter(k, k, opts), nil
}

// Traits implements [Store].
func (k *Kubernetes) Traits() Traits {
	return Traits{Group: k.group, SoftDeletes: true, Metadata: true}
}

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

// Get implements [Store]. The answer comes from the API server's storage.
func (k *Kubernetes) Get(ctx context.Context, r blocks.Resource, name string) ([]byte, error) {
	body, err := k.client.send(ctx, call{method: http.MethodGet, path: k.path(r, name)})
	if absent(err, name) {
		return nil, nil
	}
	return body, answer(err)
}

// List implements [Store].
func (k *Kubernetes) List(ctx context.Context, r blocks.Resource, q Query) ([]json.RawMessage, string, error) {
	in, query := "", url.Values{"limit": {"500"}}
	if q.Namespace != "" {
		in = q.Namespace + "/"
	}
	if q.Name != "" {
		query.Set("fieldSelector", "metadata.name="+q.Name)
	}
	if q.Next != "" {
		query.Set("continue", q.Next)
	}
	body, err := k.client.send(ctx, call{method: http.MethodGet, path: k.path(r, in), query: query})
	if err != nil {
		return nil, "", answer(err)
	}
	var list struct {
		Metadata struct{ Continue string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, "", err
	}
	return list.Items, list.Metadata.Continue, nil
}

// Create implements [Store].
func (k *Kubernetes) Create(ctx context.Context, r blocks.Resource, name string, object []byte) ([]byte, error) {
	in := name[:strings.LastIndexByte(name, '/')+1]
	body, err := k.client.send(ctx, call{method: http.MethodPost, path: k.path(r, in), query: asManager(), contentType: "application/json", body: object})
	return body, answer(err)
}

// Patch implements [Store].
func (k *Kubernetes) Patch(ctx context.Context, r blocks.Resource, name string, patch []byte) ([]byte, error) {
	body, err := k.client.send(ctx, call{method: http.MethodPatch, path: k.path(r, name), query: asManager(), contentType: string(types.JSONPatchType), body: patch})
	return body, answer(err)
}

// asManager returns the query with the field manager.
func asManager() url.Values { return url.Values{"fieldManager": {manager}} }

// Delete implements [Store].
func (k *Kubernetes) Delete(ctx context.Context, r blocks.Resource, name, uid, version string) error {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: new(types.UID(uid)), ResourceVersion: &version},
	})
	if err != nil {
		return err
	}
	_, err = k.client.send(ctx, call{method: http.MethodDelete, path: k.path(r, name), contentType: "application/json", body: body})
	if absent(err, name) {
		return nil
	}
	return answer(err)
}

// Allowed implements [Store], with a SelfSubjectAccessReview, which every authenticated user
// may create.
func (k *Kubernetes) Allowed(ctx context.Context, verb string, r blocks.Resource) (ok bool, reason string, err error) {
	name, group := rbacOf(r, k.group)
	resource, sub, _ := strings.Cut(name, "/")
	asked := &authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: sub, Verb: verb}
	if r == repair.Leases {
		asked.Namespace = repair.LeaseNamespace
		if verb != "create" { // a create names no object
			asked.Name = repair.LeaseName
		}
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return false, "", err
	}
	body, err = k.client.send(ctx, call{
		method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", contentType: "application/json", body: body,
	})
	if err != nil {
		return false, "", answer(err)
	}
	review.Kind = ""
	if err := json.Unmarshal(body, review); err != nil || review.Kind != "SelfSubjectAccessReview" {
		return false, "", errors.New("the answer is not a SelfSubjectAccessReview")
	}
	return review.Status.Allowed, cmp.Or(review.Status.Reason, review.Status.EvaluationError), nil
}

// rbacOf returns the name and API group of a resource in RBAC.
func rbacOf(r blocks.Resource, group string) (name, in string) {
	if kind := decode.KindOf(r); kind != nil {
		return kind.RBAC(group)
	}
	if r == repair.Leases {
		in = coordinationv1.GroupName
	}
	return string(r), in
}
