package testcluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// API groups of KubeVirt's virtual machines, of Whereabouts, and of additional pod
// networks. Whereabouts' CRDs have the schemas of release v0.9.4. The other CRDs are
// minimal: they define only metadata and preserve unknown fields.
const (
	KubeVirt    Group = "kubevirt.io/v1"
	Whereabouts Group = "whereabouts.cni.cncf.io/v1alpha1"
	Attachments Group = "k8s.cni.cncf.io/v1"
	// Migration is the group of Calico's migration to the newer API group.
	Migration Group = "migration.projectcalico.org/v1beta1"
)

// foreignKinds lists the kinds that an audit reads from groups other than Kubernetes' and
// Calico's.
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
	Migration: {
		{schema.GroupVersionResource{Group: "migration.projectcalico.org", Version: "v1beta1", Resource: "datastoremigrations"}, "DatastoreMigration", false},
	},
}

// customResources returns all kinds of custom resources that a cluster may serve.
func customResources() []Resource {
	all := append(CRDv1.Resources(), NativeV3.Resources()...)
	for _, g := range []Group{KubeVirt, Whereabouts, Attachments, Migration} {
		all = append(all, foreignKinds[g]...)
	}
	return all
}

// whereaboutsSchemas holds the schemas of Whereabouts' objects by kind, from its Go types
// (pkg/api/whereabouts.cni.cncf.io/v1alpha1). Status is not a subresource.
var whereaboutsSchemas = map[string]map[string]any{
	"IPPool": {"spec": objectOf(map[string]any{
		"range": textSchema,
		"allocations": map[string]any{"type": "object", "additionalProperties": objectOf(
			map[string]any{"id": textSchema, "podref": textSchema, "ifname": textSchema}, "id", "podref")},
	}, "range", "allocations")},
	"OverlappingRangeIPReservation": {"spec": objectOf(map[string]any{"containerid": textSchema, "podref": textSchema, "ifname": textSchema}, "podref")},
	"NodeSlicePool": {
		"spec": objectOf(map[string]any{"range": textSchema, "sliceSize": textSchema}, "range", "sliceSize"),
		"status": objectOf(map[string]any{"allocations": map[string]any{"type": "array", "items": objectOf(
			map[string]any{"nodeName": textSchema, "sliceRange": textSchema}, "nodeName", "sliceRange")}}, "allocations"),
	},
}

var textSchema = map[string]any{"type": "string"}

func objectOf(properties map[string]any, required ...any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// schemaOf returns the schema of a foreign kind.
func schemaOf(kind string) map[string]any {
	if properties, known := whereaboutsSchemas[kind]; known {
		return map[string]any{"type": "object", "properties": properties}
	}
	return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}

func foreignCRDs(group Group) []*unstructured.Unstructured {
	var crds []*unstructured.Unstructured
	for _, r := range foreignKinds[group] {
		scope := "Cluster"
		if r.Namespaced {
			scope = "Namespaced"
		}
		crds = append(crds, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": r.Resource + "." + r.Group},
			"spec": map[string]any{
				"group": r.Group, "scope": scope,
				"names": map[string]any{"plural": r.Resource, "singular": strings.ToLower(r.Kind), "kind": r.Kind, "listKind": r.Kind + "List"},
				"versions": []any{map[string]any{
					"name": r.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": schemaOf(r.Kind)},
				}},
			},
		}})
	}
	return crds
}
