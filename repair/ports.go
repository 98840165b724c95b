package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reader reads the cluster. Package blocks/cluster has one.
type Reader interface {
	// Read reads everything that an audit reads.
	Read(ctx context.Context) (*blocks.Snapshot, error)
	// Refresh returns prev with some objects read again, each by itself and from
	// the API server's own store: one that is gone is gone from the result, one
	// that is new is in it. An object that cannot be understood becomes a gap. Any
	// error means that nothing can be relied on. Cluster.TakenAt is the API
	// server's time of the new reading.
	Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error)
}

// ObjectRef pins one stored object.
type ObjectRef struct {
	Resource blocks.Resource
	// Name is "NAMESPACE/NAME" where objects of the resource have a namespace.
	Name            string
	UID             string
	ResourceVersion string
}

// Writer makes the changes. Every method is one step of a plan, by Calico's own
// protocol for it: each write is conditional on the version given or on that of the
// write before it, and never retried under another. A method that stops half-way puts
// back what it can.
//
// Its errors are: [ErrChanged], by errors.Is, if an object is no longer the one that
// was evaluated (nothing harmful was written, and the step may be derived again);
// [LeftBehindError], by errors.As, one or several, if a later write of the protocol
// failed; and any other error where the outcome is not known.
type Writer interface {
	// ReleaseBlock deletes an empty block, and its owner's affinity with it; nil if
	// there is none. keeps is the block that the owner keeps, nil if none, which must be
	// the same object and its owner's all the time; if it is not, the released one is
	// put back.
	ReleaseBlock(ctx context.Context, block ObjectRef, affinity, keeps *ObjectRef) error
	// DisownBlock takes a block that holds allocations, none of them its owner's, away
	// from its owner, and deletes the owner's affinity; nil if there is none.
	DisownBlock(ctx context.Context, block ObjectRef, affinity *ObjectRef) error
	// DeleteAffinity deletes an affinity of a host to a CIDR, whose block does not
	// exist or names another owner; if it names the host, the affinity is put back.
	DeleteAffinity(ctx context.Context, affinity ObjectRef) error
	// RestoreAffinity creates the affinity object of the host that a block names:
	// pending, then the block is read again, then confirmed.
	RestoreAffinity(ctx context.Context, block ObjectRef) error
	// ReleaseIPs frees ordinals of a block in one write, and lowers their handles' counts.
	// Each ordinal's handle and sequence number must be those given, in the very object
	// that the write is conditional on; of those that are not, the error is
	// [ErrChanged]. The errors are those of each, nil for one that is freed.
	ReleaseIPs(ctx context.Context, block ObjectRef, all []ReleaseOptions) []error
	// DeleteHandle deletes a handle, SetHandleCounts replaces its counts.
	DeleteHandle(ctx context.Context, handle ObjectRef) error
	SetHandleCounts(ctx context.Context, handle ObjectRef, counts []blocks.HandleCount) error
	// ClaimBlock makes an empty block of a CIDR for a host, with its affinity, or
	// confirms the affinity to a block that is the host's already. No other node may
	// have a block or an affinity there; the client that makes the block first keeps it.
	ClaimBlock(ctx context.Context, cidr netip.Prefix, host string) error
	// Reserve creates the IPReservation that keeps a block from new pods, with mark as our
	// annotation; Unreserve deletes one that carries it.
	Reserve(ctx context.Context, cidr netip.Prefix, mark string) error
	Unreserve(ctx context.Context, reservation ObjectRef) error
	// FinishDelete deletes an object that is marked deleted.
	FinishDelete(ctx context.Context, object ObjectRef) error
	// SetStrictAffinity writes the setting; a nil object means that none exists,
	// and one is created with automatic blocks on and no limit.
	SetStrictAffinity(ctx context.Context, config *ObjectRef, strict bool) error

	// ReleaseWhereabouts takes an address out of a pool of Whereabouts' that records it as
	// given, then its reservation; nil if there is none. beside are the other pools that may
	// record the address under that reservation.
	ReleaseWhereabouts(ctx context.Context, pool ObjectRef, entry SecondaryAddress, reservation *ObjectRef, beside []SecondaryAddress) error
	// DeleteWhereaboutsReservation deletes the reservation of an address that none of the
	// pools records, which are named. If one does by then, it is put back.
	DeleteWhereaboutsReservation(ctx context.Context, reservation ObjectRef, pools []SecondaryAddress) error
	// ReserveWhereabouts creates a reservation that was deleted again, as it was stored, if one
	// of the pools records its address for its pod as long as Whereabouts may go on by it.
	ReserveWhereabouts(ctx context.Context, stored json.RawMessage, pools []SecondaryAddress) error
	// RestoreWhereabouts records an address in a pool, which must not record it, while its
	// reservation exists.
	RestoreWhereabouts(ctx context.Context, pool ObjectRef, entry SecondaryAddress, reservation ObjectRef) error
	// RecordWhereabouts records an address again as a pool was stored, which must not record
	// it now, after its reservation as that was stored; either may be nil.
	RecordWhereabouts(ctx context.Context, pool *ObjectRef, offset uint64, was, reservation json.RawMessage) error

	// PutAffinityState gives an affinity the state that it had, "" included, or
	// confirms one that was created pending. Its block must not be somebody else's,
	// and out of pendingDeletion it must exist; if it is gone right after the write,
	// the affinity is deleted, too, which is [ErrChanged].
	PutAffinityState(ctx context.Context, affinity ObjectRef, state blocks.AffinityState) error
	// CreateHandle creates a handle, which must not exist, with counts.
	CreateHandle(ctx context.Context, id string, counts []blocks.HandleCount) error
	// RecreateHandle creates a handle as it was stored.
	RecreateHandle(ctx context.Context, stored json.RawMessage) error
	// RecordIP allocates an ordinal of a block, which must be free, and raises its
	// handle's count before; the handle is created if there is none.
	RecordIP(ctx context.Context, block ObjectRef, ordinal int, a Allocation) error
}

// SecondaryAddress is an address in a pool of Whereabouts', with who has it.
type SecondaryAddress struct {
	// Pool is the pool, namespace and name.
	Pool string
	// Offset is how far it lies behind the address that the pool's range is written with.
	Offset uint64
	Owner  SecondaryOwner
}

// SecondaryOwner is who has an address of a secondary network, as it is recorded: the pod,
// as namespace/name, its sandbox and the interface in it.
type SecondaryOwner struct{ Pod, Container, Interface string }

// WhereaboutsRequest is how long Whereabouts may go on by a reservation that it has read
// (pkg/storage of Whereabouts, RequestTimeout: what it does by one request).
const WhereaboutsRequest = 10 * time.Second

// BothHave says of a reservation that it is that of a pod, and that a pool records its address
// for another one.
const BothHave = "is that of pod %s, and pool %s records its address for pod %s: both may have it"

// SecondaryOwnerOf is what is recorded of an owner.
func SecondaryOwnerOf(o blocks.WhereaboutsOwner) SecondaryOwner {
	return SecondaryOwner{o.Pod.String(), o.ContainerID, o.Interface}
}

// ReleaseOptions is an address to be freed.
type ReleaseOptions struct {
	// Step is the ID of the step that frees it, for the journal.
	Step     string
	Ordinal  int
	Handle   string
	Sequence uint64
}

// Allocation is what is recorded of an address.
type Allocation struct {
	// Block is the block as it was stored, in which the ordinal was allocated as it is to
	// be again; Stored is the handle as it was stored, nil where there was none.
	Block, Stored json.RawMessage
	// Handle and Attributes are those of an address that no block recorded: it is counted
	// unless the handle counts it already.
	Handle     string
	Attributes map[string]string
	// Claim is the CIDR of the block, which is created for Host with the address: none
	// exists. Beside are the other addresses in use that it is created with, so that none
	// is handed out.
	Claim  netip.Prefix
	Host   string
	Beside []Beside
}

// Beside is an address that is recorded with another, in the block that is created.
type Beside struct {
	Ordinal    int
	Handle     string
	Attributes map[string]string
}

// Workloads evicts pods, and cordons nodes for a while. Package repair/workloads has one.
type Workloads interface {
	// Evict evicts the pod of a UID through the Eviction API. It is a
	// [RefusedEvictionError] if a budget does not allow it.
	Evict(ctx context.Context, namespace, name, uid string) error
	// Cordon makes a node unschedulable, with mark as our annotation; Uncordon takes
	// that back where the node carries the mark, and nothing else; a cordon that others
	// have made since stays, which is a [KeptCordonError]. The node's version does not
	// matter: its heartbeat writes it.
	Cordon(ctx context.Context, node ObjectRef, mark string) error
	Uncordon(ctx context.Context, node ObjectRef, mark string) error
	// AcquireLease takes the right to move pods, which one run at a time has in a cluster. It is
	// [ErrOtherRun] if another has it, wherever that runs, and is alive; say is called with
	// what is waited for until that is known. Pods and nodes are written to while it is
	// held, and not otherwise: what is being sent when it is lost is given up.
	AcquireLease(ctx context.Context, say func(string)) (Lease, error)
}

// Lease is the right to move pods in a cluster: the Lease of [LeaseName], until it is
// released.
type Lease interface {
	// Check is an error unless the run has it still, and [ErrOtherRun] if another has.
	Check(ctx context.Context) error
	Release()
}

// The Lease that a run has which moves pods.
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "calico-audit-consolidation"
)

// ErrOtherRun says that another run moves pods, reserves blocks and cordons nodes.
var ErrOtherRun = errors.New("another run that moves pods is not over")

// RefusedEvictionError says that a pod may not be evicted, by a PodDisruptionBudget for
// the most part; nothing was done to it.
type RefusedEvictionError struct {
	Pod    blocks.Key
	Reason string
	// ForNow is true if it may be allowed soon: a budget's count follows the pods.
	ForNow bool
}

// Error says which pod, and why in the API server's words.
func (e *RefusedEvictionError) Error() string {
	return fmt.Sprintf("pod %s may not be evicted now: %s", e.Pod, e.Reason)
}

// KeptCordonError says that a node stays cordoned when a cordon of ours is taken back:
// others have cordoned it since. Our mark was taken off, and nothing is left to do.
type KeptCordonError struct {
	// Node is the node's name, By the field manager that cordoned it, such as
	// "kubectl-cordon"; Since is when that wrote the node last, zero if it is not known.
	Node, By string
	Since    time.Time
}

// Error says whose the cordon is.
func (e *KeptCordonError) Error() string {
	when := ""
	if !e.Since.IsZero() {
		when = ", which wrote it at " + phrase.Time(e.Since)
	}
	return fmt.Sprintf("node %s stays cordoned: that is by %s now%s, and no more by this program, whose mark was taken off", e.Node, e.By, when)
}

// ErrChanged says that an object is no longer the one that was evaluated.
var ErrChanged = errors.New("it changed since it was evaluated")

// LeftBehindError says that a step has written something and could not finish: an
// object is left in a state that the step's protocol only passes through, or that
// contradicts another. The step is not done then, even if what it is about is as it
// should be. It is never [ErrChanged], whatever its cause.
type LeftBehindError struct {
	Resource blocks.Resource
	Name     string
	// State says of the object how it is, such as "is left pendingDeletion".
	State string
	// Err is why; nil where reading showed it.
	Err error
}

// Error names the object as kubectl does, and how it is left.
func (e *LeftBehindError) Error() string {
	text := fmt.Sprintf("%s/%s %s", singular[e.Resource], e.Name, e.State)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// singular is what kubectl calls one object of a resource.
var singular = map[blocks.Resource]string{
	blocks.Blocks: "ipamblock", blocks.Affinities: "blockaffinity", blocks.Handles: "ipamhandle", blocks.IPAMConfigs: "ipamconfig",
	blocks.Reservations: "ipreservation", blocks.Nodes: "node",
	blocks.WhereaboutsPools: "ippool.whereabouts.cni.cncf.io", blocks.WhereaboutsReservations: "overlappingrangeipreservation",
}
