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

// A kind is a kind of object that an audit reads.
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

	json  func(*decoder, *jsonReader)
	proto func(*decoder, []byte) error
}

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
	case k.proto != nil:
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

// kinds are the kinds of an audit; those with the most objects first, so that
// reading them begins first.
var kinds = []*kind{
	{resource: blocks.Pods, names: []string{"Pod"}, core: true, namespaced: true,
		json: (*decoder).pod, proto: (*decoder).protoPod},
	{resource: blocks.Handles, names: []string{"IPAMHandle"}, json: (*decoder).handle},
	{resource: blocks.Blocks, names: []string{"IPAMBlock"}, json: (*decoder).block},
	{resource: blocks.Affinities, names: []string{"BlockAffinity"}, json: (*decoder).affinity},
	{resource: blocks.Nodes, names: []string{"Node"}, core: true,
		json: (*decoder).node, proto: (*decoder).protoNode},
	{resource: blocks.Pools, names: []string{"IPPool"}, json: (*decoder).pool},
	{resource: blocks.IPAMConfigs, names: []string{"IPAMConfig", "IPAMConfiguration"},
		nativePlural: "ipamconfigurations", json: (*decoder).ipamConfig},
	{resource: blocks.Reservations, names: []string{"IPReservation"}, optional: true, json: (*decoder).reservation},
	{resource: blocks.ClusterInfos, names: []string{"ClusterInformation"}, optional: true, json: (*decoder).clusterInfo},
	{resource: blocks.ControllerConfig, names: []string{"KubeControllersConfiguration"}, optional: true,
		json: (*decoder).controllersConfig},
	{resource: blocks.FelixConfigs, names: []string{"FelixConfiguration"}, optional: true, json: (*decoder).felixConfig},
	{resource: blocks.BGPConfigs, names: []string{"BGPConfiguration"}, optional: true, json: (*decoder).bgpConfig},
	{resource: blocks.BGPPeers, names: []string{"BGPPeer"}, optional: true, json: (*decoder).bgpPeer},
	{resource: blocks.BGPFilters, names: []string{"BGPFilter"}, optional: true, json: (*decoder).bgpFilter},
	{resource: blocks.Namespaces, names: []string{"Namespace"}, core: true,
		json: (*decoder).namespace, proto: (*decoder).protoNamespace},
	{resource: blocks.VMs, names: []string{kindVM}, foreign: versionVM, optional: true, namespaced: true,
		json: (*decoder).vm, proto: (*decoder).protoVM},
	{resource: blocks.VMInstances, names: []string{kindVMI}, foreign: versionVM, optional: true, namespaced: true,
		json: (*decoder).vmInstance, proto: (*decoder).protoVMInstance},
}
