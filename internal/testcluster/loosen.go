package testcluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// LoosenCRD makes the API server accept and keep unknown fields of a kind. A CRD of a
// newer Calico accepts its new fields in the same way. The CRD is restored when the test
// ends.
func (c *Cluster) LoosenCRD(tb testing.TB, r Resource) {
	tb.Helper()
	crds := Resource{GroupVersionResource: crdResource, Kind: "CustomResourceDefinition"}
	name := r.Resource + "." + r.Group
	stored, err := c.Get(tb.Context(), crds, "", name)
	if err != nil {
		tb.Fatalf("loosening a CRD: %v", err)
	}
	original, _, _ := unstructured.NestedSlice(stored.Object, "spec", "versions")
	set := func(ctx context.Context, versions []any, keeps bool) error {
		err := c.Edit(ctx, crds, "", name, func(object map[string]any) {
			object["spec"].(map[string]any)["versions"] = versions
		})
		if err != nil {
			return err
		}
		return c.awaitSchema(ctx, r, keeps)
	}
	loose := stored.DeepCopy()
	versions, _, _ := unstructured.NestedSlice(loose.Object, "spec", "versions")
	for _, v := range versions {
		v.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true,
		}}
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := set(ctx, original, false); err != nil {
			tb.Errorf("putting back the CRD of %s: %v", r.Resource, err)
		}
	})
	if err := set(tb.Context(), versions, true); err != nil {
		tb.Fatalf("loosening the CRD of %s: %v", r.Resource, err)
	}
}

// awaitSchema waits until the API server keeps unknown fields of a kind, or drops them if
// keeps is false.
func (c *Cluster) awaitSchema(ctx context.Context, r Resource, keeps bool) error {
	return waitFor(ctx, "the schema of "+r.Resource, func(ctx context.Context) error {
		probe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": r.GroupVersion().String(), "kind": r.Kind, "metadata": map[string]any{"name": "testcluster-probe"},
			"spec": map[string]any{"unheardOf": true},
		}}
		got, err := c.client(r, "").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		kept := false
		if err == nil {
			_, kept, _ = unstructured.NestedBool(got.Object, "spec", "unheardOf")
		}
		switch {
		case kept == keeps:
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("unknown fields are kept: %t", kept)
	})
}
