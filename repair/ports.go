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

// Reader reads the cluster. Package blocks/cluster implements it.
type Reader interface {
	// Read reads all objects of an audit.
	Read(ctx context.Context) (*blocks.Snapshot, error)
	// Refresh returns prev with some objects read again, each individually and from the
	// API server's storage. Deleted objects are removed from the result, and new objects
	// are added. An object that cannot be parsed becomes a gap. After any error, the
	// result is not reliable. Cluster.TakenAt is the API server's time of the new
	// reading.
	Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error)
}

// ObjectRef pins one stored object.
type ObjectRef struct {
	Resource blocks.Resource
	// Name is "NAMESPACE/NAME" for namespaced objects.
	Name            string
	UID             string
	ResourceVersion string
}

// Writer makes the changes. Every method is one step of a plan and follows Calico's own
// protocol for that change. Each write is conditional on the given version or on that of
// the previous write, and is never retried with another version. If a method stops
// half-way, it reverts as many of its writes as it can.
//
// An error is [ErrChanged] (test it with errors.Is) if an object is no longer the evaluated one: no
// harmful write was made, and the step may be derived again. If a later write of the protocol
// failed, the error contains one or several [LeftBehindError]s (test it with errors.As). After any
// other error, the result is unknown.
type Writer interface {
	// ReleaseBlock deletes an empty block and its owner's affinity, which may be nil.
	// keeps is the block that the owner keeps, or nil. It must remain the same object
	// with the same owner the whole time; otherwise the released block is restored.
	ReleaseBlock(ctx context.Context, block ObjectRef, affinity, keeps *ObjectRef) error
	// DisownBlock removes the owner of a block whose allocations all belong to other nodes, and
	// deletes the owner's affinity, which may be nil.
	DisownBlock(ctx context.Context, block ObjectRef, affinity *ObjectRef) error
	// DeleteAffinity deletes a host's affinity to a CIDR whose block does not exist or
	// has another owner. If the block's owner is the host, the affinity is restored.
	DeleteAffinity(ctx context.Context, affinity ObjectRef) error
	// RestoreAffinity creates the affinity object of a block's owner. It is created as
	// pending, then the block is read again, then the affinity is confirmed.
	RestoreAffinity(ctx context.Context, block ObjectRef) error
	// ReleaseIPs frees ordinals of a block in one write, and lowers their handles'
	// counts. Each ordinal must have the given handle and sequence number in the version
	// on which the write is conditional; otherwise its error is [ErrChanged]. The result
	// has one error per address, nil for a freed one.
	ReleaseIPs(ctx context.Context, block ObjectRef, all []ReleaseOptions) []error
	// DeleteHandle deletes a handle; SetHandleCounts replaces its counts.
	DeleteHandle(ctx context.Context, handle ObjectRef) error
	SetHandleCounts(ctx context.Context, handle ObjectRef, counts []blocks.HandleCount) error
	// ClaimBlock creates an empty block of a CIDR for a host, with its affinity, or
	// confirms the affinity to a block that the host already owns. No other node may have
	// a block or an affinity there. If another client creates the block first, that
	// client keeps it.
	ClaimBlock(ctx context.Context, cidr netip.Prefix, host string) error
	// Reserve creates an IPReservation that keeps new pods off a block, with mark in
	// calico-audit's annotation. Unreserve deletes an IPReservation with that annotation.
	Reserve(ctx context.Context, cidr netip.Prefix, mark string) error
	Unreserve(ctx context.Context, reservation ObjectRef) error
	// FinishDelete deletes an object that is marked deleted.
	FinishDelete(ctx context.Context, object ObjectRef) error
	// SetStrictAffinity writes the setting. If config is nil, none exists, and it is
	// created with automatic blocks on and no limit.
	SetStrictAffinity(ctx context.Context, config *ObjectRef, strict bool) error

	// ReleaseWhereabouts removes an address from a Whereabouts pool that records it as
	// given, then its reservation, which may be nil. beside lists the other pools that
	// may record the address under the same reservation.
	ReleaseWhereabouts(ctx context.Context, pool ObjectRef, entry SecondaryAddress, reservation *ObjectRef, beside []SecondaryAddress) error
	// DeleteWhereaboutsReservation deletes the reservation of an address that none of the
	// given pools records. If one records it meanwhile, the reservation is restored.
	DeleteWhereaboutsReservation(ctx context.Context, reservation ObjectRef, pools []SecondaryAddress) error
	// ReserveWhereabouts recreates a deleted reservation as it was stored, if one of the
	// pools records its address for its pod within the time of a Whereabouts request.
	ReserveWhereabouts(ctx context.Context, stored json.RawMessage, pools []SecondaryAddress) error
	// RestoreWhereabouts adds an address to a pool that must not record it, while its
	// reservation exists.
	RestoreWhereabouts(ctx context.Context, pool ObjectRef, entry SecondaryAddress, reservation ObjectRef) error
	// RecordWhereabouts restores the stored reservation and then the stored entry of a
	// pool that must not record the address now. Either may be nil.
	RecordWhereabouts(ctx context.Context, pool *ObjectRef, offset uint64, was, reservation json.RawMessage) error

	// PutAffinityState restores an affinity's previous state, which may be "", or
	// confirms an affinity that was created as pending. Its block must not belong to
	// another owner. To leave pendingDeletion, the block must exist; if it does not exist
	// right after the write, the affinity is deleted and the error is [ErrChanged].
	PutAffinityState(ctx context.Context, affinity ObjectRef, state blocks.AffinityState) error
	// CreateHandle creates a missing handle with counts.
	CreateHandle(ctx context.Context, id string, counts []blocks.HandleCount) error
	// RecreateHandle recreates a handle as it was stored.
	RecreateHandle(ctx context.Context, stored json.RawMessage) error
	// RecordIP allocates a free ordinal of a block, or replaces its allocation. Before that it
	// raises its handle's count, or creates the handle. After that it lowers the count of a
	// replaced handle.
	RecordIP(ctx context.Context, block ObjectRef, ordinal int, a Allocation) error
}

// SecondaryAddress is an entry of a Whereabouts pool: an address and its owner.
type SecondaryAddress struct {
	// Pool is the pool as "NAMESPACE/NAME".
	Pool string
	// Offset is the distance of the address from the first address in the text of the
	// pool's range.
	Offset uint64
	Owner  SecondaryOwner
}

// SecondaryOwner is the recorded owner of an address of a secondary network: the pod as
// "NAMESPACE/NAME", its sandbox and the interface in it.
type SecondaryOwner struct{ Pod, Container, Interface string }

// WhereaboutsRequest is how long Whereabouts may use a reservation that it has read: the time limit
// of one request (RequestTimeout in Whereabouts' pkg/storage).
const WhereaboutsRequest = 10 * time.Second

// BothHave is the format of a conflict: the reservation is for one pod, but a pool
// records its address for another.
const BothHave = "belongs to pod %s, and pool %s records its address for pod %s: both may have it"

// SecondaryOwnerOf returns the recorded owner of an entry.
func SecondaryOwnerOf(o blocks.WhereaboutsOwner) SecondaryOwner {
	return SecondaryOwner{o.Pod.String(), o.ContainerID, o.Interface}
}

// ReleaseOptions is an address to free.
type ReleaseOptions struct {
	// Step is the ID of the address's step, for the journal.
	Step     string
	Ordinal  int
	Handle   string
	Sequence uint64
}

// Allocation is the record to write for an address.
type Allocation struct {
	// Block is the block as it was stored, with the allocation that is to be restored.
	// Stored is the handle as it was stored, or nil if there was none.
	Block, Stored json.RawMessage
	// Handle and Attributes belong to an address that no block recorded. The handle's count is
	// raised unless it already includes the address.
	Handle     string
	Attributes map[string]string
	// Replaces is the allocation that is replaced; nil if the ordinal is free.
	Replaces *ReleaseOptions
	// Claim is the CIDR of the missing block that is created for Host with the address.
	// Beside lists the other addresses in use in it, which are recorded in the same write
	// so that they are not assigned.
	Claim  netip.Prefix
	Host   string
	Beside []Beside
}

// Beside is an address that is recorded together with another in a new block.
type Beside struct {
	Ordinal    int
	Handle     string
	Attributes map[string]string
}

// Workloads evicts pods and temporarily cordons nodes. Package repair/workloads
// implements it.
type Workloads interface {
	// Evict evicts the pod with a UID through the Eviction API. The error is a
	// [RefusedEvictionError] if a budget does not allow it.
	Evict(ctx context.Context, namespace, name, uid string) error
	// Cordon makes a node unschedulable, with mark in calico-audit's annotation. Uncordon
	// removes only a cordon with that mark. If another client has cordoned the node
	// since, that cordon stays and the error is a [KeptCordonError]. The node's version
	// does not matter, because heartbeats change it.
	Cordon(ctx context.Context, node ObjectRef, mark string) error
	Uncordon(ctx context.Context, node ObjectRef, mark string) error
	// AcquireLease acquires the right to move pods, which one run at a time has in a
	// cluster. The error is [ErrOtherRun] if another live run holds it on any machine.
	// Until that is known, AcquireLease calls say with the reason for waiting. Pods and
	// nodes are written only while the lease is held. If it is lost, pending requests are
	// cancelled.
	AcquireLease(ctx context.Context, say func(string)) (Lease, error)
}

// Lease is the right to move pods in a cluster: the Lease object [LeaseName], until it is
// released.
type Lease interface {
	// Check returns nil if the run still holds the lease, and [ErrOtherRun] if another
	// run does.
	Check(ctx context.Context) error
	Release()
}

// The Lease of a run that moves pods.
const (
	LeaseNamespace = blocks.LeaseNamespace
	LeaseName      = blocks.LeaseName
)

// ErrOtherRun means that another run moves pods, reserves blocks and cordons nodes.
var ErrOtherRun = errors.New("another run that moves pods is still in progress")

// RefusedEvictionError means that a pod may not be evicted, mostly because of a
// PodDisruptionBudget. The pod is unchanged.
type RefusedEvictionError struct {
	Pod    blocks.Key
	Reason string
	// ForNow is true if the eviction may be allowed soon: a budget's status follows the
	// pods.
	ForNow bool
}

// Error implements error. The reason is in the API server's words.
func (e *RefusedEvictionError) Error() string {
	return fmt.Sprintf("pod %s may not be evicted now: %s", e.Pod, e.Reason)
}

// KeptCordonError means that a node stays cordoned although Uncordon removed
// calico-audit's cordon, because another client has cordoned it since. Our mark is
// removed, and there is nothing left to do.
type KeptCordonError struct {
	// Node is the node's name. By is the field manager that cordoned it, such as
	// "kubectl-cordon". Since is the time of that manager's last write, or zero if
	// unknown.
	Node, By string
	Since    time.Time
}

// Error implements error.
func (e *KeptCordonError) Error() string {
	when := ""
	if !e.Since.IsZero() {
		when = ", which wrote it at " + phrase.Time(e.Since)
	}
	return fmt.Sprintf("node %s stays cordoned: %s now owns the cordon%s, and calico-audit's annotation is gone", e.Node, e.By, when)
}

// ErrChanged means that an object has changed or was replaced since it was evaluated.
var ErrChanged = errors.New("it changed since it was evaluated")

// LeftBehindError means that a step made some writes and could not finish. It left an
// object in an intermediate state of the step's protocol, or one that contradicts another
// object. The step then does not count as done, even if its target is as intended. A
// LeftBehindError is never [ErrChanged], whatever its cause.
type LeftBehindError struct {
	Resource blocks.Resource
	Name     string
	// State describes the object, for example "is left pendingDeletion".
	State string
	// Err is the cause, or nil if the remains were found by reading.
	Err error
}

// Error implements error. It names the object as kubectl does.
func (e *LeftBehindError) Error() string {
	text := fmt.Sprintf("%s/%s %s", singular[e.Resource], e.Name, e.State)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// singular holds kubectl's names for one object of a resource.
var singular = map[blocks.Resource]string{
	blocks.Blocks: "ipamblock", blocks.Affinities: "blockaffinity", blocks.Handles: "ipamhandle", blocks.IPAMConfigs: "ipamconfig",
	blocks.Reservations: "ipreservation", blocks.Nodes: "node",
	blocks.WhereaboutsPools: "ippool.whereabouts.cni.cncf.io", blocks.WhereaboutsReservations: "overlappingrangeipreservation",
}
