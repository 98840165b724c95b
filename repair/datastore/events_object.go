package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// EventObject names an object that Events may be about.
type EventObject struct {
	// Resource is the plural or singular name, or the kind, with its group unless
	// that is the core group.
	Resource schema.GroupResource
	// Namespace is empty for objects that live in none.
	Namespace, Name string
}

// ParseEventObject reads TYPE[.GROUP]/NAME or TYPE[.GROUP]/NAMESPACE/NAME, such as
// "deployments.apps/calico-system/calico-kube-controllers".
func ParseEventObject(s string) (EventObject, error) {
	parts := strings.Split(s, "/")
	o := EventObject{Resource: schema.ParseGroupResource(strings.ToLower(parts[0]))}
	switch len(parts) {
	case 2:
		o.Name = parts[1]
	case 3:
		o.Namespace, o.Name = parts[1], parts[2]
	}
	if o.Resource.Resource == "" || o.Name == "" || len(parts) == 3 && o.Namespace == "" {
		return EventObject{}, fmt.Errorf("%q is no object: want TYPE[.GROUP]/NAME or TYPE[.GROUP]/NAMESPACE/NAME", s)
	}
	return o, nil
}

// String writes what ParseEventObject reads.
func (o EventObject) String() string {
	if o.Namespace == "" {
		return o.Resource.String() + "/" + o.Name
	}
	return o.Resource.String() + "/" + o.Namespace + "/" + o.Name
}

func leaseObject(namespace, name string) EventObject {
	return EventObject{schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, namespace, name}
}

// nodeReference is how an Event names a node. Its UID is the name: so kubelet has
// it, and "kubectl describe node" looks for both (kubectl pkg/describe,
// NodeDescriber), so that the UID need not be known.
func nodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// eventNamespace is where Events about an object live: with the object, and for
// objects that live in no namespace in "default".
func eventNamespace(ref *corev1.ObjectReference) string {
	if ref.Namespace != "" {
		return ref.Namespace
	}
	return metav1.NamespaceDefault
}

// eventTarget is the object that Events are about that concern no node, as it was
// last looked up. "kubectl describe" finds an Event by its object's UID.
type eventTarget struct {
	ref   corev1.ObjectReference
	until time.Time // when it must be looked up again
}

// target looks up the object that Events are about that concern no node. It is nil
// if the API server does not serve such a type; an error means that it is not known.
// An object that may not be read, or does not exist, is named without its UID.
func (e *Events) target(ctx context.Context) (*corev1.ObjectReference, error) {
	now, args := time.Now(), []any{"object", e.opts.Object.String()}
	if now.Before(e.object.until) {
		return &e.object.ref, nil
	}
	ref, path, err := e.locate()
	e.troubles.note(troubleType, "", "", err, args...)
	if err != nil {
		e.failed.Add(1)
		if e.object.ref.Kind != "" {
			return &e.object.ref, nil // as it was before
		}
		if meta.IsNoMatchError(err) {
			err = nil
		}
		return nil, err
	}
	body, err := e.client.send(ctx, request{method: http.MethodGet, path: path})
	var object metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(body, &object)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e.troubles.note(troubleObject, "", troubleKind(err), err, args...)
	until := now.Add(e.opts.Refresh)
	if err != nil {
		e.failed.Add(1)
		until = now.Add(min(e.pace.most, e.opts.Refresh))
		object.UID = e.object.ref.UID
	}
	ref.UID = object.UID
	e.object = eventTarget{ref, until}
	return &e.object.ref, nil
}

// locate finds out, from what the API server serves, which kind of object it is
// and where it lies.
func (e *Events) locate() (corev1.ObjectReference, string, error) {
	none := corev1.ObjectReference{}
	d, err := discovery.NewDiscoveryClientForConfig(e.config)
	if err != nil {
		return none, "", err
	}
	cached := memory.NewMemCacheClient(d)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	o := e.opts.Object
	kind, err := mapper.KindFor(o.Resource.WithVersion(""))
	if err != nil {
		return none, "", err
	}
	m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return none, "", err
	}
	path := "/apis/" + m.Resource.Group + "/" + m.Resource.Version
	if m.Resource.Group == "" {
		path = "/api/" + m.Resource.Version
	}
	namespace := o.Namespace
	switch {
	case m.Scope.Name() != meta.RESTScopeNameNamespace && namespace != "":
		return none, "", fmt.Errorf("%s live in no namespace", m.Resource.Resource)
	case m.Scope.Name() == meta.RESTScopeNameNamespace:
		if namespace == "" {
			namespace = e.opts.Namespace
		}
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + m.Resource.Resource + "/" + url.PathEscape(o.Name)
	apiVersion, k := kind.ToAPIVersionAndKind()
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: k, Namespace: namespace, Name: o.Name}, path, nil
}
