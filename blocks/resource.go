package blocks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Resource names a kind of object that an audit reads, by the plural that the
// Kubernetes API serves it under in the older API group.
type Resource string

// The resources of an audit. The newer API group calls IPAMConfigs
// "ipamconfigurations"; the model has one name for both.
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

	// Whereabouts' kinds. Its pools are called as Calico's are, in another API group.
	WhereaboutsPools        Resource = "ippools.whereabouts.cni.cncf.io"
	WhereaboutsReservations Resource = "overlappingrangeipreservations"
	NodeSlicePools          Resource = "nodeslicepools"
	NetworkAttachments      Resource = "network-attachment-definitions"

	// Migrations are Calico's moves of its objects to the newer API group.
	Migrations Resource = "datastoremigrations"

	// Budgets are read only where they are asked for: a report is complete without them.
	Budgets Resource = "poddisruptionbudgets"
)

// Resources lists every resource of an audit, in the order in which they are shown and
// saved. A new one comes last: of older snapshots it is told by the order where they end.
var Resources = []Resource{
	Pools, Blocks, Affinities, Handles, IPAMConfigs, Reservations, ClusterInfos,
	ControllerConfig, FelixConfigs, BGPConfigs, BGPPeers, BGPFilters, Nodes, Pods, Namespaces,
	VMs, VMInstances, WhereaboutsPools, WhereaboutsReservations, NodeSlicePools, NetworkAttachments, Migrations,
}

// A Gap is something that an audit wanted to read and could not. Verdicts that
// need it are withheld.
type Gap struct {
	// Resource is the kind that was not read, or not read whole.
	Resource Resource `json:"resource"`
	// Name is the one object that could not be understood. Empty when the gap
	// concerns the whole resource.
	Name string `json:"name,omitempty"`
	// Field is the field of the object that could not be understood, as a path
	// such as "spec.cidr". Empty when the gap concerns the whole resource.
	Field string `json:"field,omitempty"`
	// Source is the file that holds the object, for snapshots read from files.
	Source string `json:"source,omitempty"`
	// Reason says in one sentence what went wrong and, where a right was
	// missing, which.
	Reason string `json:"reason"`

	// Tolerated is true if the object was read but for the field, and whatever the field
	// may say is taken into account: no verdict is lost, and the snapshot counts as
	// complete. Anybody who may write a pod's annotations could make such a gap.
	Tolerated bool `json:"held,omitempty"`

	// Denied is true if the API server refused the account: [ErrDenied].
	Denied bool `json:"-"`
	// Stale is true if the kind was read whole and its objects are there as they
	// were then, but are no longer known to be current.
	Stale bool `json:"-"`
	// Prefix is the block's CIDR and Owner its owner as far as they could be
	// read from an object that as a whole could not. They keep the harm of one
	// bad object to the verdicts that it touches. The zero value means unknown.
	Prefix Prefix `json:"-"`
	Owner  Owner  `json:"-"`
	// OwnerKnown is true if the object's owner field was readable, so that Owner
	// (also the zero Owner, "no owner") can be relied on.
	OwnerKnown bool `json:"-"`
}

// Whole reports whether the resource as a whole is missing or incomplete, as
// against one object of it.
func (g Gap) Whole() bool { return g.Name == "" }

// String says the gap in one line.
func (g Gap) String() string {
	if g.Whole() {
		return fmt.Sprintf("%s: %s", g.Resource, g.Reason)
	}
	where := fmt.Sprintf("%s %q", g.Resource, g.Name)
	if g.Field != "" {
		where += " " + g.Field
	}
	if g.Source != "" {
		where = g.Source + ": " + where
	}
	return where + ": " + g.Reason
}

// Untolerated returns the gaps that make a reading incomplete: those that are not tolerated
// ([Gap.Tolerated]).
func Untolerated(gaps []Gap) []Gap {
	if !slices.ContainsFunc(gaps, func(g Gap) bool { return g.Tolerated }) {
		return gaps
	}
	return slices.DeleteFunc(slices.Clone(gaps), func(g Gap) bool { return g.Tolerated })
}

// CompareGaps orders gaps by resource, name and field.
func CompareGaps(a, b Gap) int {
	return cmp.Or(
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
}

// Ref names objects that are to be read again.
type Ref struct {
	Resource Resource
	// Namespace and Name name one object; the namespace is empty for kinds that
	// have none.
	Namespace, Name string
	// Node, for pods and instead of a name, means all pods bound to that node.
	Node string
	// Label, for pods whose labels are read, with a namespace and instead of a name, means
	// all pods of that namespace with that label, written key=value.
	Label string
}

// ErrDenied says that the API server does not accept the account that asks, or does not permit
// it what it asks for (401, 403). Asking again does not help.
var ErrDenied = errors.New("the API server refuses this account")
