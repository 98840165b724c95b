package source

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// A shape says what a saved snapshot keeps of a value. One tree of shapes serves
// for reducing JSON, for turning protobuf into reduced JSON, and for replacing
// names, so that the three cannot drift apart. Whatever a decoder reads must
// stand in its kind's tree; a test holds the two together.
type shape struct {
	key string
	num int // of the protobuf field, for core kinds
	form
	parts []*shape // members of an object, or the one shape of a list's elements
	// whole keeps everything below the value, also what this release does not
	// know, unless names are replaced. It is meant for the specs of Calico's
	// objects, which are what a bug report is about.
	whole bool
	// wants tells which entries of a map are kept, or which elements of a list, by the
	// field kind; nil keeps all.
	wants func(key string) bool
	// role is what the value means, for replacing names.
	role role
	// roles are those of a map's entries by key. Entries without one are left
	// out when names are replaced; a nil map gives all the shape's own.
	roles map[string]role
}

// form is the form of a value.
type form int

const (
	formObject     form = iota
	formList            // of values of one shape
	formMap             // texts by text
	formText            // a text, or a number or boolean where JSON has one
	formBool            // protobuf: a varint
	formTime            // protobuf: a message of seconds
	formQuantities      // protobuf: messages of a text, by text
)

func object(key string, num int, parts ...*shape) *shape {
	return &shape{key: key, num: num, form: formObject, parts: parts}
}

func listOf(key string, num int, element *shape) *shape {
	return &shape{key: key, num: num, form: formList, parts: []*shape{element}}
}

func value(key string, num int, r role) *shape {
	return &shape{key: key, num: num, form: formText, role: r}
}

// metaShape is what is kept of an object's metadata. Whose managedFields are not
// read has none of them kept.
func metaShape(name role, managed bool, extra ...*shape) *shape {
	parts := []*shape{
		value("name", 1, name),
		value("namespace", 3, roleNamespace),
		value("uid", 5, roleUID),
		value("resourceVersion", 6, roleWord),
		{key: "creationTimestamp", num: 8, form: formTime, role: roleTime},
		{key: "deletionTimestamp", num: 9, form: formTime, role: roleTime},
	}
	if managed {
		parts = append(parts, listOf("managedFields", 17, object("", 0,
			value("manager", 1, roleManager),
			value("operation", 2, roleWord),
			value("subresource", 8, roleWord),
			&shape{key: "time", num: 4, form: formTime, role: roleTime},
		)))
	}
	return object("metadata", 1, append(parts, extra...)...)
}

// calicoAnnotation tells whether an annotation or label is Calico's own. The copy
// that Calico keeps of an object's metadata is not wanted: it repeats what others
// wrote there.
func calicoAnnotation(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	return found && (domain == "projectcalico.org" || strings.HasSuffix(domain, ".projectcalico.org")) && name != "metadata"
}

// podAnnotation reports whether a pod's annotation is kept.
func podAnnotation(key string) bool {
	return calicoAnnotation(key) || key == annotationNetworks || key == annotationNetworksOld
}

// ownersShape keeps owner references to objects of one kind.
func ownersShape(kind string) *shape {
	owners := listOf("ownerReferences", 13, object("", 0,
		value("kind", 1, roleWord), value("name", 3, roleVM), value("apiVersion", 5, roleOwnerVersion)))
	owners.wants = func(k string) bool { return k == kind }
	return owners
}

func annotations(roles map[string]role) *shape {
	return &shape{key: "annotations", num: 12, form: formMap, wants: calicoAnnotation, roles: roles}
}

var (
	allLabels    = &shape{key: "labels", num: 11, form: formMap, role: roleLabel}
	calicoLabels = &shape{key: "labels", form: formMap, wants: calicoAnnotation, roles: map[string]role{hostnameHashLabel: roleStub}}

	poolRequests = map[string]role{annotationPoolsV4: rolePoolList, annotationPoolsV6: rolePoolList}

	podAnnotations = &shape{key: "annotations", num: 12, form: formMap, wants: podAnnotation, roles: map[string]role{
		annotationPodIP: roleAddresses, annotationPodIPs: roleAddresses, annotationContainerID: roleSandbox,
		annotationPoolsV4: rolePoolList, annotationPoolsV6: rolePoolList,
		annotationNetworks: roleNetworks, annotationNetworksOld: roleNetworks,
	}}
	ownerAttributes = map[string]role{
		"pod": rolePod, "namespace": roleNamespace, "node": roleNode, "type": roleWord, "service": roleService,
		"timestamp": roleTime, "vmi-name": roleVM, "vmi-uid": roleUID, "vm-uid": roleUID, "vmim-uid": roleUID,
	}
)

// calicoObject is the shape of an object of Calico's with what decoders read of
// its spec.
func calicoObject(name role, spec ...*shape) *shape {
	s := object("spec", 0, spec...)
	s.whole = true
	return object("", 0, metaShape(name, true, calicoLabels, annotations(map[string]role{})), s)
}

// keeps has the shape of each kind.
var keeps = map[blocks.Resource]*shape{
	blocks.Pods: object("", 0,
		metaShape(rolePod, false, podAnnotations, ownersShape(kindVMI),
			&shape{key: "labels", num: 11, form: formMap, wants: func(k string) bool { return k == labelVM }, role: roleVM}),
		object("spec", 2,
			value("nodeName", 10, roleNode),
			&shape{key: "hostNetwork", num: 11, form: formBool, role: roleNumber}),
		object("status", 3,
			value("phase", 1, roleWord),
			value("podIP", 6, roleAddresses),
			listOf("podIPs", 12, object("", 0, value("ip", 1, roleAddresses))),
			&shape{key: "startTime", num: 7, form: formTime, role: roleTime})),
	blocks.Nodes: object("", 0,
		metaShape(roleNode, true, allLabels, annotations(nodeAnnotationRoles())),
		object("spec", 2,
			&shape{key: "unschedulable", num: 4, form: formBool, role: roleNumber},
			listOf("taints", 5, object("", 0, value("key", 1, roleTaint), value("effect", 3, roleWord)))),
		object("status", 3,
			&shape{key: "allocatable", num: 2, form: formQuantities, wants: func(k string) bool { return k == "pods" }, role: roleQuantity},
			listOf("conditions", 4, object("", 0, value("type", 1, roleWord), value("status", 2, roleWord))),
			object("nodeInfo", 7, value("operatingSystem", 9, roleWord)))),
	blocks.Namespaces: object("", 0,
		metaShape(roleNamespace, true, allLabels, annotations(poolRequests))),

	blocks.VMs:         object("", 0, metaShape(roleVM, false)),
	blocks.VMInstances: object("", 0, metaShape(roleVM, false, ownersShape(kindVM))),

	blocks.Pools: object("", 0, append(calicoObject(rolePool,
		value("cidr", 0, roleAddresses), value("blockSize", 0, roleNumber), value("disabled", 0, roleNumber),
		value("nodeSelector", 0, roleNodeSelector), value("namespaceSelector", 0, roleNamespaceSelector),
		listOf("allowedUses", 0, value("", 0, roleWord)), value("assignmentMode", 0, roleWord),
		value("ipipMode", 0, roleWord), value("vxlanMode", 0, roleWord), value("disableBGPExport", 0, roleNumber),
		object("ipip", 0, value("enabled", 0, roleNumber), value("mode", 0, roleWord)),
	).parts, object("status", 0, listOf("conditions", 0, object("", 0,
		value("type", 0, roleWord), value("status", 0, roleWord), value("reason", 0, roleWord), value("lastTransitionTime", 0, roleTime)))))...),
	blocks.Blocks: calicoObject(roleCIDRName,
		value("cidr", 0, roleAddresses), value("affinity", 0, roleOwner), value("affinityClaimTime", 0, roleTime),
		listOf("allocations", 0, value("", 0, roleNumber)), listOf("unallocated", 0, value("", 0, roleNumber)),
		listOf("attributes", 0, object("", 0,
			value("handle_id", 0, roleHandle), value("releasedAt", 0, roleTime),
			&shape{key: "secondary", form: formMap, roles: ownerAttributes},
			&shape{key: "alternateOwnerAttrs", form: formMap, roles: ownerAttributes})),
		value("sequenceNumber", 0, roleNumber),
		&shape{key: "sequenceNumberForAllocation", form: formMap, role: roleByOrdinal},
		value("deleted", 0, roleNumber), value("strictAffinity", 0, roleNumber)),
	blocks.Affinities: calicoObject(roleAffinityName,
		value("cidr", 0, roleAddresses), value("node", 0, roleNode), value("type", 0, roleWord),
		value("state", 0, roleWord), value("deleted", 0, roleBool)),
	blocks.Handles: calicoObject(roleHandle,
		value("handleID", 0, roleHandle), &shape{key: "block", form: formMap, role: roleByCIDR}, value("deleted", 0, roleBool)),
	blocks.Reservations: calicoObject(roleReservation, listOf("reservedCIDRs", 0, value("", 0, roleAddresses))),
	blocks.IPAMConfigs: calicoObject(roleDefault,
		value("strictAffinity", 0, roleNumber), value("autoAllocateBlocks", 0, roleNumber), value("maxBlocksPerHost", 0, roleNumber),
		value("ipCooldownSeconds", 0, roleNumber)),
	blocks.ClusterInfos: calicoObject(roleDefault,
		value("clusterGUID", 0, roleGUID), value("calicoVersion", 0, roleVersion), value("datastoreReady", 0, roleNumber)),
	blocks.ControllerConfig: calicoObject(roleDefault,
		object("controllers", 0, object("node", 0, value("leakGracePeriod", 0, roleDuration)))),
	blocks.FelixConfigs: calicoObject(roleDefault, value("bpfEnabled", 0, roleNumber), value("programClusterRoutes", 0, roleWord),
		value("routeSource", 0, roleWord)),
	blocks.BGPConfigs: calicoObject(roleDefault, value("nodeToNodeMeshEnabled", 0, roleNumber), value("asNumber", 0, roleAS)),
	blocks.BGPPeers: calicoObject(rolePeer,
		value("node", 0, roleNode), value("nodeSelector", 0, roleNodeSelector), value("peerIP", 0, roleEndpoint),
		value("peerSelector", 0, roleNodeSelector), value("asNumber", 0, roleAS), value("localASNumber", 0, roleAS),
		value("numAllowedLocalASNumbers", 0, roleNumber), value("reversePeering", 0, roleWord),
		value("localWorkloadSelector", 0, roleWorkloadSelector), listOf("filters", 0, value("", 0, roleFilter))),
	blocks.BGPFilters: calicoObject(roleFilter,
		listOf("exportV4", 0, filterRuleShape), listOf("importV4", 0, filterRuleShape),
		listOf("exportV6", 0, filterRuleShape), listOf("importV6", 0, filterRuleShape)),
}

var filterRuleShape = object("", 0,
	value("cidr", 0, roleAddresses), value("matchOperator", 0, roleWord), value("source", 0, roleWord),
	value("interface", 0, roleWord), value("action", 0, roleWord),
	object("prefixLength", 0, value("min", 0, roleNumber), value("max", 0, roleNumber)))

func nodeAnnotationRoles() map[string]role {
	roles := map[string]role{
		annotationCalicoLabels: roleLabelText, annotationASNumber: roleAS, annotationRRClusterID: roleAddresses,
	}
	for _, a := range nodeAddressAnnotations {
		roles[a] = roleAddresses
	}
	for a := range tunnelAnnotations {
		roles[a] = roleAddresses
	}
	return roles
}
