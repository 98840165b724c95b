package testcluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// calicoKinds are the Calico kinds that an audit reads, by their plural names
// in crd.projectcalico.org/v1.
var calicoKinds = []struct{ plural, kind string }{
	{"bgpconfigurations", "BGPConfiguration"},
	{"bgpfilters", "BGPFilter"},
	{"bgppeers", "BGPPeer"},
	{"blockaffinities", "BlockAffinity"},
	{"clusterinformations", "ClusterInformation"},
	{"felixconfigurations", "FelixConfiguration"},
	{"ipamblocks", "IPAMBlock"},
	{"ipamconfigs", "IPAMConfig"},
	{"ipamhandles", "IPAMHandle"},
	{"ippools", "IPPool"},
	{"ipreservations", "IPReservation"},
	{"kubecontrollersconfigurations", "KubeControllersConfiguration"},
}

// Resource returns one of the kinds that an audit reads, as the group
// names it. It panics if the plural name, which is the one that
// crd.projectcalico.org/v1 has, is not among them.
func (g Group) Resource(plural string) Resource {
	for _, r := range g.Resources() {
		if r.Resource == plural || g == NativeV3 && r.Resource == nativePlural(plural) {
			return r
		}
	}
	panic("testcluster: no resource " + plural + " of " + string(g))
}

// Resources returns the group's kinds that an audit reads, as the group names
// them, sorted by plural name.
func (g Group) Resources() []Resource {
	if kinds := foreignKinds[g]; kinds != nil {
		return slices.Clone(kinds)
	}
	gv, err := schema.ParseGroupVersion(string(g))
	if err != nil {
		panic(err)
	}
	var resources []Resource
	for _, k := range calicoKinds {
		plural, kind := k.plural, k.kind
		if g == NativeV3 {
			plural, kind = nativePlural(plural), nativeKind(kind)
		}
		resources = append(resources, Resource{gv.WithResource(plural), kind, false})
	}
	return resources
}

// IPAMConfig is the one kind that the native group names differently.
func nativePlural(plural string) string {
	if plural == "ipamconfigs" {
		return "ipamconfigurations"
	}
	return plural
}

func nativeKind(kind string) string {
	if kind == "IPAMConfig" {
		return "IPAMConfiguration"
	}
	return kind
}
