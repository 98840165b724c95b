package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object names an object that Events may be about.
type Object struct {
	// Resource is the plural or singular name, or the kind, with its group unless
	// that is the core group.
	Resource schema.GroupResource
	// Namespace is empty for objects that live in none.
	Namespace, Name string
}

// ParseObject reads TYPE[.GROUP]/NAME or TYPE[.GROUP]/NAMESPACE/NAME, such as
// "deployments.apps/calico-system/calico-kube-controllers".
func ParseObject(s string) (Object, error) {
	kind, rest, _ := strings.Cut(s, "/")
	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		namespace, name = "", rest
	}
	o := Object{schema.ParseGroupResource(strings.ToLower(kind)), namespace, name}
	if o.Resource.Resource == "" || name == "" || strings.Contains(name, "/") || namespaced && namespace == "" {
		return Object{}, fmt.Errorf("%q is not an object: want TYPE[.GROUP]/NAME or TYPE[.GROUP]/NAMESPACE/NAME", s)
	}
	return o, nil
}

// String writes what ParseObject reads.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Resource.String() + "/" + o.Name
	}
	return o.Resource.String() + "/" + o.Namespace + "/" + o.Name
}

func leaseObject(namespace, name string) Object {
	return Object{schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, namespace, name}
}

// nodeReference is how an Event names a node. Its UID is the name: so kubelet has
// it, and "kubectl describe node" looks for both (kubectl pkg/describe,
// NodeDescriber), so that the UID need not be known.
func nodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// namespaceOf is where Events about an object live: with the object, and for
// objects that live in no namespace in "default".
func namespaceOf(ref *corev1.ObjectReference) string {
	if ref.Namespace != "" {
		return ref.Namespace
	}
	return metav1.NamespaceDefault
}

// target is the object that Events are about that concern no node, as it was last
// looked up. "kubectl describe" finds an Event by its object's UID.
type target struct {
	ref   corev1.ObjectReference
	until time.Time // when it must be looked up again
}

// target looks up the object that Events are about that concern no node. It is nil
// if the API server does not serve such a type; an error means that it is not known.
// An object that may not be read, or does not exist, is named without its UID.
func (w *Writer) target(ctx context.Context) (*corev1.ObjectReference, error) {
	now, name := time.Now(), w.opts.Object.String()
	if now.Before(w.object.until) {
		return &w.object.ref, nil
	}
	ref, resource, err := w.locate()
	if !w.went(ctx, troubleType, "", err, "object", name) {
		if w.object.ref.Kind != "" {
			return &w.object.ref, nil // as it was before
		}
		if meta.IsNoMatchError(err) {
			err = nil
		}
		return nil, err
	}
	object, err := w.metadata.Resource(resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	until := now.Add(w.opts.Refresh)
	if w.went(ctx, troubleObject, "", err, "object", name) {
		ref.UID = object.UID
	} else {
		ref.UID, until = w.object.ref.UID, now.Add(min(w.pace.most, w.opts.Refresh))
	}
	w.object = target{ref, until}
	return &w.object.ref, nil
}

// locate finds out, from what the API server serves, which kind of object it is
// and where it lies.
func (w *Writer) locate() (ref corev1.ObjectReference, resource schema.GroupVersionResource, err error) {
	meta.MaybeResetRESTMapper(w.mapper)
	o := w.opts.Object
	kind, err := w.mapper.KindFor(o.Resource.WithVersion(""))
	if err != nil {
		return ref, resource, err
	}
	m, err := w.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return ref, resource, err
	}
	namespaced := m.Scope.Name() == meta.RESTScopeNameNamespace
	if o.Namespace != "" && !namespaced {
		return ref, resource, fmt.Errorf("%s live in no namespace", m.Resource.Resource)
	}
	if namespaced && o.Namespace == "" {
		o.Namespace = w.opts.Namespace
	}
	apiVersion, k := kind.ToAPIVersionAndKind()
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: k, Namespace: o.Namespace, Name: o.Name}, m.Resource, nil
}
