package decode

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// The two API groups that Calico's objects may live in, with their versions. The older is
// that of the CRDs under libcalico-go/config/crd; Calico's code has no name for it.
const (
	GroupCRD    = "crd.projectcalico.org/v1"
	GroupNative = apiv3.GroupVersionCurrent
)

// Kinds are the kinds of an audit; those with the most objects first, so that
// reading them begins first. Each is described in a file of its own.
var Kinds = []*Kind{
	pods, handles, ipamBlocks, affinities, nodes, pools, ipamConfigs, reservations, clusterInfos, controllersConfigs,
	felixConfigs, bgpConfigs, bgpPeers, bgpFilters, namespaces, virtualMachines, virtualMachineInstances,
	whereaboutsPools, whereaboutsReservations, nodeSlicePools, networkAttachments, migrations,
}

// OnDemand are kinds that are read only where they are asked for. That one of them is
// missing, or may not be read, makes no reading incomplete.
var OnDemand = []*Kind{budgets}

// A Kind describes a kind of object that an audit reads. What works on objects of
// any kind works by this, and names none.
type Kind struct {
	Resource blocks.Resource
	// Names are the values of the field kind: one, or two where the API groups
	// differ.
	Names []string
	// nativePlural is what the newer API group serves it as, where that differs.
	nativePlural string
	// Core kinds are Kubernetes' own, of the group that version names with its version;
	// empty is "v1".
	Core    bool
	version string
	// Foreign is the API group, with its version, of kinds that are neither
	// Kubernetes' nor Calico's. They are optional.
	Foreign string
	// Named kinds are those of which only the metadata of objects is read.
	Named bool
	// Beside is an API group, with its version, without which objects of
	// the kind are not asked for; empty where that depends on nothing.
	Beside string
	// Namespaced kinds have objects of one name in several namespaces.
	Namespaced bool
	// Optional kinds may be absent: an older Calico does not have them, or a
	// cluster needs none.
	Optional bool
	// ByNode kinds have objects that are bound to nodes, and are read again by node or label,
	// too.
	ByNode bool
	// Absent explains why files are incomplete that hold neither an object of the kind nor
	// an empty List of it. It returns "" if no verdict on the snapshot needs the kind. If
	// Absent is nil, the cluster is assumed to have no such object.
	Absent func(*blocks.Snapshot) string
	// tolerates reports whether an object is taken into account though a field of it cannot be
	// understood ([blocks.Gap.Tolerated]); nil if none is.
	tolerates func(field string) bool
	// keeps is what a saved snapshot keeps of an object, and how its names are
	// replaced.
	keeps *fieldMask
	// labelled is what is read of an object where labels are asked for that a saved
	// snapshot does not keep.
	labelled *fieldMask
	// Single kinds have one object that counts, which is called "default".
	Single bool

	// What follows is made by describe, of a descriptor.

	// JSON decodes the object at hand of a reader.
	JSON func(*Decoder, *JSONReader)
	// none returns a list of no objects, in which there is room for some.
	none func() records
	// store returns an empty store of its records.
	store func() storedRecords
}

// always is [Kind.Absent] of a kind that every verdict needs.
func always(reason string) func(*blocks.Snapshot) string {
	return func(*blocks.Snapshot) string { return reason }
}

// protobuf reports whether the API server encodes the kind's objects, or what is read of
// them, as protobuf.
func (k *Kind) protobuf() bool { return k.Core && k.version == "" || k.Named }

// Version is the API version of the kind's objects, where Calico's are in a group.
func (k *Kind) Version(group string) string {
	switch {
	case k.Core:
		return cmp.Or(k.version, "v1")
	case k.Foreign != "":
		return k.Foreign
	}
	return group
}

// metadataOnly is how the API server is asked for nothing but the metadata of
// objects.
const metadataOnly = ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"

// Accept is the media types of a list or, with an empty text, of a single object.
func (k *Kind) Accept(list string) string {
	switch {
	case k.Named:
		as := fmt.Sprintf(metadataOnly, list)
		return protobuf.MediaType + as + ",application/json" + as + ",application/json"
	case k.protobuf():
		return protobuf.MediaType + ",application/json"
	}
	return "application/json"
}

// Plural is what an API group serves the kind as.
func (k *Kind) Plural(group string) string {
	if group == GroupNative && k.nativePlural != "" {
		return k.nativePlural
	}
	plural, _, _ := strings.Cut(string(k.Resource), ".")
	return plural
}

// Path is where an API server serves the kind's objects, those of a namespace or, for an
// empty one, all, where Calico's are in a group.
func (k *Kind) Path(group, namespace string) string {
	path := "/apis/" + k.Version(group)
	if k.Version(group) == "v1" {
		path = "/api/v1"
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + k.Plural(group)
}

// RBAC is what a role names the kind by where Calico's objects are in a group: the resource,
// and its API group.
func (k *Kind) RBAC(group string) (resource, apiGroup string) {
	if of, _, named := strings.Cut(k.Version(group), "/"); named {
		apiGroup = of
	}
	return k.Plural(group), apiGroup
}

// Name returns what an API group calls objects of a kind.
func (k *Kind) Name(version string) string {
	if version == GroupNative {
		return k.Names[len(k.Names)-1]
	}
	return k.Names[0]
}

// KindOf returns the kind of a resource, or nil.
func KindOf(res blocks.Resource) *Kind {
	for _, all := range [][]*Kind{Kinds, OnDemand} {
		if i := slices.IndexFunc(all, func(k *Kind) bool { return k.Resource == res }); i >= 0 {
			return all[i]
		}
	}
	return nil
}
