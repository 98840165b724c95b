package testcluster

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The methods of this file read and write single objects directly in etcd. They are much
// faster than the API server and skip its checks, so that tests can create damage in
// bulk.

// Stored returns an object as stored: a custom resource as *unstructured.Unstructured
// with integers as int64, a core object as its Go type.
func (c *Cluster) Stored(ctx context.Context, r Resource, namespace, name string) (runtime.Object, error) {
	return c.getStored(ctx, storageKey(r, namespace, name))
}

// Store creates or replaces a stored object.
func (c *Cluster) Store(ctx context.Context, r Resource, object runtime.Object) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	}
	key := storageKey(r, m.GetNamespace(), m.GetName())
	value, err := encodeStored(object)
	if err == nil {
		_, err = c.Etcd.Put(ctx, key, string(value))
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", key, err)
	}
	return nil
}

// Unstore removes an object immediately, despite its finalizers. It returns an error if the
// object does not exist.
func (c *Cluster) Unstore(ctx context.Context, r Resource, namespace, name string) error {
	key := storageKey(r, namespace, name)
	done, err := c.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(key), ">", 0)).
		Then(clientv3.OpDelete(key)).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("not found")
	}
	if err != nil {
		return fmt.Errorf("deleting stored %s: %w", key, err)
	}
	return nil
}

func storageKey(r Resource, namespace, name string) string {
	if r.Namespaced {
		return storagePrefix(r) + namespace + "/" + name
	}
	return storagePrefix(r) + name
}
