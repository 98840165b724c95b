package testcluster

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// The methods of this file read and write objects without Calico's client and its
// validation, to inspect stored objects and to create damage. The namespace of a
// cluster-scoped kind is "".

func (c *Cluster) client(r Resource, namespace string) dynamic.ResourceInterface {
	if r.Namespaced && namespace != "" {
		return c.Dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return c.Dynamic.Resource(r.GroupVersionResource)
}

// List returns all objects of a kind in all namespaces.
func (c *Cluster) List(ctx context.Context, r Resource) ([]unstructured.Unstructured, error) {
	list, err := c.client(r, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.Resource, err)
	}
	return list.Items, nil
}

// Get returns one object.
func (c *Cluster) Get(ctx context.Context, r Resource, namespace, name string) (*unstructured.Unstructured, error) {
	object, err := c.client(r, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", r.Kind, name, err)
	}
	return object, nil
}

// Create creates an object. It sets the API version and kind.
func (c *Cluster) Create(ctx context.Context, r Resource, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	u.SetAPIVersion(r.GroupVersion().String())
	u.SetKind(r.Kind)
	if _, err := c.client(r, u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating %s %s: %w", r.Kind, u.GetName(), err)
	}
	return nil
}

// Edit changes an object. change modifies the content in place; numbers are int64 or
// float64. On a conflict, change is called again. The API server still validates the
// object against its schema.
func (c *Cluster) Edit(ctx context.Context, r Resource, namespace, name string, change func(object map[string]any)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := c.client(r, namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object.Object)
		_, err = c.client(r, namespace).Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("editing %s %s: %w", r.Kind, name, err)
	}
	return nil
}

// Delete deletes an object immediately.
func (c *Cluster) Delete(ctx context.Context, r Resource, namespace, name string) error {
	var now int64
	err := c.client(r, namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		return fmt.Errorf("deleting %s %s: %w", r.Kind, name, err)
	}
	return nil
}

// MakeClusterInformation creates the ClusterInformation that Calico's programs create
// when they start. Without it, an audit assumes that Calico stores its data elsewhere.
func (c *Cluster) MakeClusterInformation(tb testing.TB, group Group) {
	tb.Helper()
	err := c.Create(tb.Context(), group.Resource("clusterinformations"), map[string]any{
		"metadata": map[string]any{"name": "default"}, "spec": map[string]any{"clusterGUID": "5ca1ab1e-0ddb-4115-8a1a-b1e0ddba1150"},
	})
	if err != nil {
		tb.Fatal(err)
	}
}
