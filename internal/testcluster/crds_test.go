package testcluster

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCRDsOfBothGroups(t *testing.T) {
	for _, group := range []Group{CRDv1, NativeV3} {
		crds, err := CRDs(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*unstructured.Unstructured{}
		for _, crd := range crds {
			byName[crd.GetName()] = crd
		}
		for _, r := range group.Resources() {
			crd := byName[r.Resource+"."+r.Group]
			if crd == nil {
				t.Errorf("no CRD of %s in %s", r.Resource, group)
				continue
			}
			if kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind"); kind != r.Kind {
				t.Errorf("%s of %s has kind %s, not %s", r.Resource, group, kind, r.Kind)
			}
		}
	}
	if _, err := CRDs(context.Background(), "example.org/v1"); err == nil {
		t.Error("an unknown group is no error")
	}
}
