package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// Store keeps objects: an API server ([Kubernetes]), or Calico's own etcd (package
// repair/datastore/etcd). Each method writes at most once, and does not retry. Objects are JSON
// in the form of an API server's, with uid and resourceVersion. Names are "NAMESPACE/NAME" for
// namespaced kinds.
//
// An error that contains a [Response] is an answer. After any other error, it is not known
// whether a write was carried out.
type Store interface {
	// Traits describes how Calico uses the store.
	Traits() Traits
	// Get returns an object as stored; nil if it does not exist.
	Get(ctx context.Context, r blocks.Resource, name string) ([]byte, error)
	// List returns objects, and the Query.Next of the following page; "" after the last one.
	List(ctx context.Context, r blocks.Resource, q Query) (objects []json.RawMessage, next string, err error)
	// Create creates an object and returns it as stored.
	Create(ctx context.Context, r blocks.Resource, name string, object []byte) ([]byte, error)
	// Patch applies a JSON patch, which tests uid and resourceVersion, and returns the object
	// as stored.
	Patch(ctx context.Context, r blocks.Resource, name string, patch []byte) ([]byte, error)
	// Delete deletes an object in the given version. If the object does not exist, it may return an
	// error or nil.
	Delete(ctx context.Context, r blocks.Resource, name, uid, version string) error
	// Allowed reports whether the user has a right, and the reason if not.
	Allowed(ctx context.Context, verb string, r blocks.Resource) (ok bool, reason string, err error)
}

// Traits holds the differences between datastores for Calico's own clients.
type Traits struct {
	// Group is the API group of Calico's objects.
	Group string
	// SoftDeletes: an object is marked deleted before its deletion, which is not conditional
	// for Calico's clients. In etcd, a deletion is.
	SoftDeletes bool
	// Metadata: labels find affinities, an annotation repeats them in the older group, and
	// names have no upper-case letters.
	Metadata bool
}

// Query selects objects of a list.
type Query struct {
	// Namespace and Name select by metadata; empty for all.
	Namespace, Name string
	// Next continues a list.
	Next string
}

// Response is an error response of a datastore.
type Response struct {
	Err error
	// Refused means that the request was certainly not carried out. Exists means that an object of
	// the name exists, and Busy that the server is overloaded.
	Refused, Exists, Busy bool
	// After is the pause before a retry that the datastore asks for.
	After time.Duration
}

// Error implements error.
func (r *Response) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Response) Unwrap() error { return r.Err }

// responseOf returns the response in an error, or the zero value.
func responseOf(err error) Response {
	var r *Response
	if errors.As(err, &r) {
		return *r
	}
	return Response{}
}
