package source

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// The two API groups that Calico's objects may live in, with their versions.
const (
	groupCRD    = "crd.projectcalico.org/v1"
	groupNative = "projectcalico.org/v3"
)

// kinds are the kinds of an audit; those with the most objects first, so that
// reading them begins first. Each is described in a file of its own.
var kinds = []*kind{
	pods, handles, ipamBlocks, affinities, nodes, pools, ipamConfigs, reservations, clusterInfos, controllersConfigs,
	felixConfigs, bgpConfigs, bgpPeers, bgpFilters, namespaces, virtualMachines, virtualMachineInstances,
}

// A kind describes a kind of object that an audit reads. What works on objects of
// any kind works by this, and names none.
type kind struct {
	resource blocks.Resource
	// names are the values of the field kind: one, or two where the API groups
	// differ.
	names []string
	// nativePlural is what the newer API group serves it as, where that differs.
	nativePlural string
	// core kinds are Kubernetes' own.
	core bool
	// foreign is the API group, with its version, of kinds that are neither
	// Kubernetes' nor Calico's. They are optional, and of their objects only the
	// metadata is read.
	foreign string
	// namespaced kinds have objects of one name in several namespaces.
	namespaced bool
	// optional kinds may be absent: an older Calico does not have them, or a
	// cluster needs none.
	optional bool
	// keeps is what a saved snapshot keeps of an object, and how its names are
	// replaced.
	keeps *shape
	// single kinds have one object that counts, which is called "default".
	single bool

	// What follows is made by describe, of a column: json decodes an object.
	json func(*decoder, *jsonReader)
	// none returns a list of no objects, in which there is room for some.
	none func() records
	// store returns an empty store of its records.
	store func() storedRecords
}

// protobuf tells whether the API server encodes the kind's objects, or their metadata
// if they are foreign, as protobuf.
func (k *kind) protobuf() bool { return k.core || k.foreign != "" }

// version is the API version of the kind's objects, where Calico's are in a group.
func (k *kind) version(group string) string {
	switch {
	case k.core:
		return "v1"
	case k.foreign != "":
		return k.foreign
	}
	return group
}

// metadataOnly is how the API server is asked for nothing but the metadata of
// objects.
const metadataOnly = ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"

// accept is the media types of a list or, with an empty text, of a single object.
func (k *kind) accept(list string) string {
	switch {
	case k.foreign != "":
		as := fmt.Sprintf(metadataOnly, list)
		return protobufType + as + ",application/json" + as + ",application/json"
	case k.core:
		return protobufType + ",application/json"
	}
	return "application/json"
}

// plural is what an API group serves the kind as.
func (k *kind) plural(group string) string {
	if group == groupNative && k.nativePlural != "" {
		return k.nativePlural
	}
	return string(k.resource)
}

// name returns what an API group calls objects of a kind.
func (k *kind) name(version string) string {
	if version == groupNative {
		return k.names[len(k.names)-1]
	}
	return k.names[0]
}

// kindOf returns the kind of a resource, or nil.
func kindOf(res blocks.Resource) *kind {
	for _, k := range kinds {
		if k.resource == res {
			return k
		}
	}
	return nil
}
