package testcluster

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Resource is a kind of object that an audit reads.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind's name.
	Kind string
	// Namespaced reports whether the objects are namespaced.
	Namespaced bool
}

// Core lists the Kubernetes kinds that an audit reads.
var Core = []Resource{
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", false},
	{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false},
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true},
}

// Services and Events are kinds that an audit reads on demand.
var (
	Services = Resource{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "Service", true}
	Events   = Resource{schema.GroupVersionResource{Version: "v1", Resource: "events"}, "Event", true}
)

// Resource returns a kind that an audit reads, by its plural name in
// crd.projectcalico.org/v1. It panics if there is no such kind.
func (g Group) Resource(plural string) Resource {
	if g == EtcdV3 { // its objects are read in the older form
		g = CRDv1
	}
	for i, r := range g.Resources() {
		if r.Resource == plural || g == NativeV3 && CRDv1.Resources()[i].Resource == plural {
			return r
		}
	}
	panic("testcluster: no resource " + plural + " of " + string(g))
}

// Resources returns the group's kinds that an audit reads, sorted by their plural names
// in crd.projectcalico.org/v1. Calico's own CRDs confirm these names.
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
