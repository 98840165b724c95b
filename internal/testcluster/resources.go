package testcluster

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Resource is one kind of object that an audit reads.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of one object.
	Kind string
	// Namespaced says that objects live in namespaces.
	Namespaced bool
}

// Core are the Kubernetes kinds that an audit reads.
var Core = []Resource{
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", false},
	{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false},
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true},
}

// services are the one other kind that a Seeder makes.
var services = Resource{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "Service", true}

// Resource returns one of the kinds that an audit reads, as the group
// names it. It panics if the plural name, which is the one that
// crd.projectcalico.org/v1 has, is not among them.
func (g Group) Resource(plural string) Resource {
	for i, r := range g.Resources() {
		if r.Resource == plural || g == NativeV3 && CRDv1.Resources()[i].Resource == plural {
			return r
		}
	}
	panic("testcluster: no resource " + plural + " of " + string(g))
}

// Resources returns the group's kinds that an audit reads, as the group names
// them, in the order of the names that crd.projectcalico.org/v1 has for them. That those are
// right, Calico's own CRDs show.
func (g Group) Resources() []Resource {
	if kinds := foreignKinds[g]; kinds != nil {
		return slices.Clone(kinds)
	}
	gv, err := schema.ParseGroupVersion(string(g))
	if err != nil {
		panic(err)
	}
	var resources []Resource
	for _, k := range slices.SortedFunc(slices.Values(decode.Kinds), func(a, b *decode.Kind) int { return cmp.Compare(a.Resource, b.Resource) }) {
		if !k.Core && k.Foreign == "" {
			resources = append(resources, Resource{gv.WithResource(k.Plural(string(g))), k.Name(string(g)), k.Namespaced})
		}
	}
	return resources
}
