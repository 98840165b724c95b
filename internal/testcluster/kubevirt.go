package testcluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KubeVirt is the API group of KubeVirt's virtual machines. Its CRDs are minimal: of
// an object, only the metadata are known, and everything else is kept as it is.
const KubeVirt Group = "kubevirt.io/v1"

// kubeVirtKinds are the kinds that an audit reads.
var kubeVirtKinds = []Resource{
	{schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}, "VirtualMachineInstance", true},
	{schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}, "VirtualMachine", true},
}

// customResources are all kinds of custom resources that a cluster may hold.
func customResources() []Resource {
	return append(append(CRDv1.Resources(), NativeV3.Resources()...), kubeVirtKinds...)
}

func kubeVirtCRDs() []*unstructured.Unstructured {
	var crds []*unstructured.Unstructured
	for _, r := range kubeVirtKinds {
		crds = append(crds, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": r.Resource + "." + r.Group},
			"spec": map[string]any{
				"group": r.Group, "scope": "Namespaced",
				"names": map[string]any{"plural": r.Resource, "singular": strings.ToLower(r.Kind), "kind": r.Kind, "listKind": r.Kind + "List"},
				"versions": []any{map[string]any{
					"name": r.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}})
	}
	return crds
}
