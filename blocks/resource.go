package blocks

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// DefaultName is the name of the only effective object of a configuration kind.
const DefaultName = "default"

// GroupKubeVirt is the API group of KubeVirt's virtual machines (kubevirt.io/api core/v1).
const GroupKubeVirt = "kubevirt.io"

// Resource names a kind of object by its plural in the Kubernetes API's older group.
type Resource string

// The resources of an audit. IPAMConfigs is called "ipamconfigurations" in the newer API
// group; the model uses one name for both.
const (
	Pools            Resource = "ippools"
	Blocks           Resource = "ipamblocks"
	Affinities       Resource = "blockaffinities"
	Handles          Resource = "ipamhandles"
	IPAMConfigs      Resource = "ipamconfigs"
	Reservations     Resource = "ipreservations"
	ClusterInfos     Resource = "clusterinformations"
	ControllerConfig Resource = "kubecontrollersconfigurations"
	FelixConfigs     Resource = "felixconfigurations"
	BGPConfigs       Resource = "bgpconfigurations"
	BGPPeers         Resource = "bgppeers"
	BGPFilters       Resource = "bgpfilters"
	Nodes            Resource = "nodes"
	Pods             Resource = "pods"
	Namespaces       Resource = "namespaces"
	VMs              Resource = "virtualmachines"
	VMInstances      Resource = "virtualmachineinstances"

	// Whereabouts' kinds. Its pools have the same plural as Calico's, in another API group.
	WhereaboutsPools        Resource = "ippools.whereabouts.cni.cncf.io"
	WhereaboutsReservations Resource = "overlappingrangeipreservations"
	NodeSlicePools          Resource = "nodeslicepools"
	NetworkAttachments      Resource = "network-attachment-definitions"

	// Migrations are Calico's migrations of its objects to the newer API group.
	Migrations Resource = "datastoremigrations"

	// Budgets and Services are optional: a report is complete without them.
	Budgets  Resource = "poddisruptionbudgets"
	Services Resource = "services"
)

// Resources lists every resource of an audit, in the order of display and storage. Append
// new ones: older snapshots are recognised by their last resource.
var Resources = []Resource{
	Pools, Blocks, Affinities, Handles, IPAMConfigs, Reservations, ClusterInfos,
	ControllerConfig, FelixConfigs, BGPConfigs, BGPPeers, BGPFilters, Nodes, Pods, Namespaces,
	VMs, VMInstances, WhereaboutsPools, WhereaboutsReservations, NodeSlicePools, NetworkAttachments, Migrations,
}

// FieldMissing is the reason of a gap whose field an object lacks.
const FieldMissing = "is missing"

// A Gap is a failed read. Verdicts that need the data are withheld.
type Gap struct {
	// Resource is the kind that was not read completely.
	Resource Resource `json:"resource"`
	// Name is the object that could not be parsed; empty if the gap concerns the whole
	// resource.
	Name string `json:"name,omitempty"`
	// Field is the path of the unreadable field, such as "spec.cidr"; empty if the gap
	// concerns the whole resource.
	Field string `json:"field,omitempty"`
	// Source is the object's file, for snapshots read from files.
	Source string `json:"source,omitempty"`
	// Reason describes the failure in one sentence, including a missing right.
	Reason string `json:"reason"`
	// Read is the shell command that saves all objects of a kind that files lack; else empty.
	Read string `json:"read,omitempty"`

	// Tolerated is true if only the field is unreadable and every possible value of it is taken
	// into account. No verdict is withheld and the snapshot counts as complete, because anyone who
	// may write a pod's annotations can cause such a gap.
	Tolerated bool `json:"held,omitempty"`

	// Denied is true if the API server refused access: [ErrDenied].
	Denied bool `json:"-"`
	// NotRecorded is true if a [Gap] of a single object is missing from a saved snapshot, because
	// the object is not saved.
	NotRecorded bool `json:"-"`
	// Stale is true if the kind was read completely, but its objects may be outdated.
	Stale bool `json:"-"`
	// Prefix and Owner are the block's CIDR and owner, if they could be read from an object
	// that is otherwise unreadable. They confine the gap to the verdicts about that block.
	// Zero means unknown.
	Prefix Prefix `json:"-"`
	Owner  Owner  `json:"-"`
	// OwnerKnown is true if the object's owner field was readable. Owner is then reliable,
	// even if it is zero ("no owner").
	OwnerKnown bool `json:"-"`
}

// Whole reports whether the gap concerns the whole resource, not a single object.
func (g Gap) Whole() bool { return g.Name == "" }

// String returns the gap as one line.
func (g Gap) String() string {
	where := string(g.Resource)
	if !g.Whole() {
		where = strings.TrimSpace(fmt.Sprintf("%s %q %s", g.Resource, g.Name, g.Field))
	}
	if g.Source != "" {
		where = g.Source + ": " + where
	}
	return where + ": " + g.Reason
}

// Untolerated returns the gaps that make a reading incomplete ([Gap.Tolerated] ones do
// not).
func Untolerated(gaps []Gap) []Gap {
	if !slices.ContainsFunc(gaps, func(g Gap) bool { return g.Tolerated }) {
		return gaps
	}
	return slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return g.Tolerated })
}

// ForbiddenReason begins the reason of a list that the API server forbids.
const ForbiddenReason = "forbidden: needs the right to list "

// JoinForbidden returns the gaps with those of forbidden lists as one, blocks first.
func JoinForbidden(gaps []Gap) []Gap {
	forbidden := func(g Gap) bool { return g.Name == "" && strings.HasPrefix(g.Reason, ForbiddenReason) }
	var kinds []string
	for _, g := range gaps {
		switch {
		case !forbidden(g):
		case g.Resource == Blocks:
			kinds = slices.Insert(kinds, 0, string(g.Resource))
		default:
			kinds = append(kinds, string(g.Resource))
		}
	}
	if len(kinds) < 2 {
		return gaps
	}
	joined := Gap{Resource: Resource(kinds[0]), Reason: ForbiddenReason + strings.Join(kinds, ", ") + " (the ClusterRole in examples/kubernetes/rbac grants it)"}
	return append([]Gap{joined}, slices.DeleteFunc(slices.Clone(gaps), forbidden)...)
}

// CompareGaps orders gaps by resource, name and field.
func CompareGaps(a, b Gap) int {
	return cmp.Or(
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
}

// Ref selects objects to read again.
type Ref struct {
	Resource Resource
	// Namespace and Name name one object; the namespace is empty for cluster-scoped kinds.
	Namespace, Name string
	// Node, without a name, selects all pods bound to that node.
	Node string
	// Label, as key=value with a namespace and without a name, selects all pods of the
	// namespace with that label. It requires that pod labels are read.
	Label string
}

// All reports whether the reference selects all objects of a cluster-scoped kind: it has only a
// resource.
func (r Ref) All() bool { return r == Ref{Resource: r.Resource} }

// ErrDenied means that the API server rejects the credentials (401) or denies the request
// (403). A retry does not help.
var ErrDenied = errors.New("the API server refuses this account")

// Prefix is the CIDR of a pool or block, always masked (without host bits).
type Prefix = netip.Prefix
