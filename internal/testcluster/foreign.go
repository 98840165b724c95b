package testcluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API groups of KubeVirt's virtual machines, of Whereabouts, and of networks that pods
// are attached to. Their CRDs are minimal: of an object, only the metadata are known, and
// everything else is kept as it is.
const (
	KubeVirt    Group = "kubevirt.io/v1"
	Whereabouts Group = "whereabouts.cni.cncf.io/v1alpha1"
	Attachments Group = "k8s.cni.cncf.io/v1"
)

// foreignKinds are the kinds that an audit reads of groups that are neither Kubernetes'
// nor Calico's.
var foreignKinds = map[Group][]Resource{
	KubeVirt: {
		{schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}, "VirtualMachineInstance", true},
		{schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}, "VirtualMachine", true},
	},
	Whereabouts: {
		{schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}, "IPPool", true},
		{schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "nodeslicepools"}, "NodeSlicePool", true},
		{schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "overlappingrangeipreservations"}, "OverlappingRangeIPReservation", true},
	},
	Attachments: {
		{schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}, "NetworkAttachmentDefinition", true},
	},
}

// customResources are all kinds of custom resources that a cluster may hold.
func customResources() []Resource {
	all := append(CRDv1.Resources(), NativeV3.Resources()...)
	for _, g := range []Group{KubeVirt, Whereabouts, Attachments} {
		all = append(all, foreignKinds[g]...)
	}
	return all
}

func foreignCRDs(group Group) []*unstructured.Unstructured {
	var crds []*unstructured.Unstructured
	for _, r := range foreignKinds[group] {
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
