package blocks

import (
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Snapshot is one reading of a cluster. Its slices are unordered until [Snapshot.Sort]. A
// cluster may have a hundred thousand handles and pods, so these are pointers and snapshots
// share unchanged ones. To change such a record, replace it with a copy.
type Snapshot struct {
	Cluster Cluster

	Pools        []Pool
	Blocks       []Block
	Affinities   []Affinity
	Handles      []*Handle
	Reservations []Reservation
	Nodes        []Node
	Workloads    []*Workload
	Namespaces   []Namespace
	BGPPeers     []BGPPeer
	BGPFilters   []BGPFilter
	// VMs and VMInstances are KubeVirt's virtual machines. VMsKnown is true if both kinds
	// were read completely. Otherwise (KubeVirt's API not served, not permitted, or not in
	// the files) a virtual machine may exist although it is not listed.
	VMs, VMInstances []VirtualMachine
	VMsKnown         bool

	// Whereabouts' records for the addresses of secondary networks, and these networks;
	// empty if Whereabouts is not used.
	WhereaboutsPools        []WhereaboutsPool
	WhereaboutsReservations []WhereaboutsReservation
	NodeSlicePools          []NodeSlicePool
	NetworkAttachments      []NetworkAttachment

	// Migrations are Calico's migrations of its objects to the newer API group.
	Migrations []Migration

	// Budgets are the PodDisruptionBudgets. BudgetsKnown is true if they were requested and
	// read completely, together with the labels of pods. A failed read is a tolerated gap
	// ([Gap.Tolerated]).
	Budgets      []DisruptionBudget
	BudgetsKnown bool

	// Services are the Services that were read. No audit needs the right to list them, and a
	// refusal is not a gap.
	Services []Service

	// SandboxEvents are the kubelets' events about pods whose network they could not set up;
	// empty if Events may not be read.
	SandboxEvents []SandboxEvent

	// IPAM is Calico's IPAM configuration, or its defaults if the object does not exist
	// ([IPAMConfig.Present]).
	IPAM IPAMConfig
	// IgnoredIPAM are IPAM configuration objects with other names than "default". Calico
	// ignores them.
	IgnoredIPAM []IPAMConfig
	// Info is the cluster's ClusterInformation.
	Info ClusterInfo
	// Controllers is the KubeControllersConfiguration named "default".
	Controllers ControllersConfig
	// Felix is the FelixConfiguration named "default".
	Felix FelixConfig
	// BGP is the BGPConfiguration named "default".
	BGP BGPConfig

	// Lease belongs to the run that moves pods. KnownRuns are the runs whose journals were given.
	Lease     MoverLease
	KnownRuns []KnownRun

	// Hosts holds all knowledge about the nodes' kernels.
	Hosts HostReading

	// Gaps lists the failed reads.
	Gaps []Gap
}

// Cluster describes the source of a snapshot.
type Cluster struct {
	// GUID is the cluster's identity from ClusterInformation; empty if that was not read.
	GUID string
	// Datastore is "kubernetes", [DatastoreEtcd] or "files".
	Datastore string
	// APIGroup is the API group of the IPAM objects: "crd.projectcalico.org/v1" or
	// "projectcalico.org/v3". Empty for etcdv3, and for files without Calico objects.
	APIGroup string
	// APIGroupReason explains the choice of the API group.
	APIGroupReason string
	// OtherGroup is the second API group that serves IPAM objects, as during a migration;
	// empty if there is none. OtherLocked is true if its datastore is locked.
	OtherGroup  string
	OtherLocked bool
	// APIServer is the cluster IP of the API server's own Service, default/kubernetes. It is
	// known only to a reader that runs in the cluster; else the zero value.
	APIServer netip.Addr
	// CalicoVersion is the version in ClusterInformation, such as "v3.31.0".
	CalicoVersion string
	// TakenAt is the reference time for all ages: the API server's time when reading
	// started, or when the files were written. Zero if unknown.
	TakenAt time.Time
	// Assumes names the kinds that are assumed to be complete in files without counts, with their
	// numbers of objects. Such files do not show whether a selector left out objects.
	Assumes []string
	// Ageless is true if the datastore records no times of writes: then only two observations
	// show how long a state has lasted.
	Ageless bool
	// Live is true for a snapshot of a running cluster. Its objects may have changed
	// between two lists.
	Live bool
}

// Taken returns TakenAt as a [Time].
func (c *Cluster) Taken() Time { return TimeOf(c.TakenAt) }

// DatastoreEtcd means that Calico has an etcd of its own.
const DatastoreEtcd = "etcdv3"

// Clone returns a copy with its own lists, which may be sorted, cut or changed record by
// record. Data behind pointers is shared.
func (s *Snapshot) Clone() *Snapshot {
	c := *s
	for _, v := range []reflect.Value{reflect.ValueOf(&c).Elem(), reflect.ValueOf(&c.Hosts).Elem()} {
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Slice && !f.IsNil() {
				own := reflect.MakeSlice(f.Type(), f.Len(), f.Len())
				reflect.Copy(own, f)
				f.Set(own)
			}
		}
	}
	return &c
}

// SameObjects reports whether two snapshots of one cluster hold the very same objects and
// gaps, so that only their times differ. Both must be immutable.
func (s *Snapshot) SameObjects(o *Snapshot) bool {
	if s.Cluster.APIGroup != o.Cluster.APIGroup || s.Cluster.OtherGroup != o.Cluster.OtherGroup || s.Cluster.OtherLocked != o.Cluster.OtherLocked || s.Cluster.CalicoVersion != o.Cluster.CalicoVersion || s.Cluster.GUID != o.Cluster.GUID ||
		!slices.Equal(s.Gaps, o.Gaps) {
		return false
	}
	same := func(a, b reflect.Value, apart ...string) bool {
		for i := range a.NumField() {
			x, y := a.Field(i), b.Field(i)
			switch {
			case slices.Contains(apart, a.Type().Field(i).Name):
			case x.Kind() == reflect.Slice:
				if x.Len() != y.Len() || x.Len() > 0 && x.Pointer() != y.Pointer() {
					return false
				}
			case !x.Equal(y):
				return false
			}
		}
		return true
	}
	return same(reflect.ValueOf(*s), reflect.ValueOf(*o), "Cluster", "Gaps", "Hosts") &&
		same(reflect.ValueOf(s.Hosts), reflect.ValueOf(o.Hosts), "Until", "Asked")
}

// Missing returns the gap of the whole resource, if there is one. Verdicts must not
// conclude from a missing object of such a resource that the object does not exist.
func (s *Snapshot) Missing(r Resource) (Gap, bool) {
	for _, g := range s.Gaps {
		if g.Resource == r && g.Whole() {
			return g, true
		}
	}
	return Gap{}, false
}

// Unreadable returns the gaps of single objects of a resource, without the tolerated ones
// ([Gap.Tolerated]).
func (s *Snapshot) Unreadable(r Resource) []Gap {
	var out []Gap
	for _, g := range s.Gaps {
		if g.Resource == r && !g.Whole() && !g.Tolerated {
			out = append(out, g)
		}
	}
	return out
}

// Complete reports whether the snapshot has all the data that verdicts need.
func (s *Snapshot) Complete() bool { return len(Untolerated(s.Gaps)) == 0 }

// TunnelOfOne reports whether a node still has to take a tunnel address that only one of two
// pools gives.
func (s *Snapshot) TunnelOfOne(p, q *Pool) bool {
	return slices.ContainsFunc(TunnelTypes, func(kind string) bool {
		return p.GivesTunnel(kind) != q.GivesTunnel(kind) && slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.LacksTunnel(kind) })
	})
}
