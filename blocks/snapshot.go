package blocks

import (
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Prefix is the CIDR of a pool or block, always masked (no host bits).
type Prefix = netip.Prefix

// Snapshot is one reading of a cluster. Its slices are in no particular order;
// [Snapshot.Sort] puts them into the canonical one. Of handles and pods, of which there are
// a hundred thousand, it has pointers, so that snapshots share what did not change between
// them: who wants another record makes a copy.
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
	// VMs and VMInstances are KubeVirt's virtual machines. VMsKnown is true if both
	// kinds were read whole: where KubeVirt's API is not served, not permitted or not
	// in the files, a virtual machine that is not here may exist all the same.
	VMs, VMInstances []VirtualMachine
	VMsKnown         bool

	// What Whereabouts records of the addresses of secondary networks, and these networks;
	// nothing where it is not used.
	WhereaboutsPools        []WhereaboutsPool
	WhereaboutsReservations []WhereaboutsReservation
	NodeSlicePools          []NodeSlicePool
	NetworkAttachments      []NetworkAttachment

	// Migrations are Calico's moves of its objects to the newer API group.
	Migrations []Migration

	// Budgets are the PodDisruptionBudgets. BudgetsKnown is true if they were asked for
	// and read whole, and the labels of pods with them. Why they could not be read is a
	// gap that is tolerated ([Gap.Tolerated]).
	Budgets      []DisruptionBudget
	BudgetsKnown bool

	// IPAM is Calico's IPAM configuration; Calico's defaults where no object
	// exists (see [IPAMConfig.Present]).
	IPAM IPAMConfig
	// Info is the cluster's ClusterInformation.
	Info ClusterInfo
	// Controllers is the KubeControllersConfiguration named "default".
	Controllers ControllersConfig
	// Felix is the FelixConfiguration named "default".
	Felix FelixConfig
	// BGP is the BGPConfiguration named "default".
	BGP BGPConfig

	// Hosts is what is known of the nodes' kernels.
	Hosts HostReading

	// Gaps says what could not be read.
	Gaps []Gap
}

// Cluster says where a snapshot comes from.
type Cluster struct {
	// GUID is the cluster's identity as ClusterInformation records it; empty
	// when that was not read.
	GUID string
	// Datastore is "kubernetes", "etcdv3" or "files".
	Datastore string
	// APIGroup is the API group that the IPAM objects were read from,
	// "crd.projectcalico.org/v1" or "projectcalico.org/v3". Empty for etcdv3,
	// and for files without any Calico object.
	APIGroup string
	// APIGroupReason says why that group was read.
	APIGroupReason string
	// OtherGroup is the API group that serves IPAM objects beside APIGroup, as during a
	// migration; empty if none does. OtherLocked is true if its datastore is locked.
	OtherGroup  string
	OtherLocked bool
	// CalicoVersion as ClusterInformation records it, such as "v3.31.0".
	CalicoVersion string
	// TakenAt is the time that all ages are counted from: the API server's
	// clock when reading began or, for files, when they were written. Zero when
	// unknown.
	TakenAt time.Time
	// Live is true for a snapshot of a running cluster, whose objects may have
	// changed between one list and the next.
	Live bool
}

// Taken returns TakenAt as objects carry times.
func (c *Cluster) Taken() Time { return TimeOf(c.TakenAt) }

// Clone returns a copy whose lists are its own: they may be sorted and cut, and their
// records replaced. What lists and records point to is shared.
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

// SameObjects reports whether two snapshots, of which nothing is ever changed, hold the
// very same objects and gaps of one cluster, so that they differ by their times alone.
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

// Missing returns the gap that makes a resource as a whole unusable for verdicts
// about absence, if there is one.
func (s *Snapshot) Missing(r Resource) (Gap, bool) {
	for _, g := range s.Gaps {
		if g.Resource == r && g.Whole() {
			return g, true
		}
	}
	return Gap{}, false
}

// Unreadable returns the single objects of a resource that could not be
// understood, less those that are tolerated ([Gap.Tolerated]).
func (s *Snapshot) Unreadable(r Resource) []Gap {
	var out []Gap
	for _, g := range s.Gaps {
		if g.Resource == r && !g.Whole() && !g.Tolerated {
			out = append(out, g)
		}
	}
	return out
}

// Complete is true if nothing is missing from the snapshot that a verdict needs.
func (s *Snapshot) Complete() bool { return len(Untolerated(s.Gaps)) == 0 }
