package repair

import (
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// PlanKind is the kind field of a stored plan.
const PlanKind = "RepairPlan"

// Kind is a kind of step: one change, as small as possible.
type Kind string

// Kinds of step.
const (
	// ReleaseBlock deletes an empty block and its owner's affinity to it.
	ReleaseBlock Kind = "release-block"
	// DeleteAffinity deletes an affinity that no block confirms.
	DeleteAffinity Kind = "delete-affinity"
	// DisownBlock removes a deleted node's ownership of a block in use, and its affinity.
	DisownBlock Kind = "disown-block"
	// RestoreAffinity recreates the affinity object of a block's owner.
	RestoreAffinity Kind = "restore-affinity"
	// RecordIP records an address that a live pod uses but no block records.
	RecordIP Kind = "record-ip"
	// ReleaseIP frees one address without an owner.
	ReleaseIP Kind = "release-ip"
	// DeleteHandle deletes a handle that no block refers to.
	DeleteHandle Kind = "delete-handle"
	// CreateHandle creates a missing handle that blocks refer to.
	CreateHandle Kind = "create-handle"
	// FixHandleCount sets a handle's counts to the counts in the blocks.
	FixHandleCount Kind = "fix-handle-count"
	// ReserveBlock keeps new pods off a block with an IPReservation; UnreserveBlock
	// deletes the IPReservation.
	ReserveBlock   Kind = "reserve-block"
	UnreserveBlock Kind = "unreserve-block"
	// CordonNode cordons a node temporarily; UncordonNode removes that cordon.
	CordonNode   Kind = "cordon-node"
	UncordonNode Kind = "uncordon-node"
	// EvictPod makes a pod's controller start a replacement elsewhere.
	EvictPod Kind = "evict-pod"
	// ClaimBlock creates an empty block for a node.
	ClaimBlock Kind = "claim-block"
	// FinishDelete deletes an object that was marked deleted but not deleted.
	FinishDelete Kind = "finish-delete"
	// ReleaseWhereabouts removes an address of a secondary network from its pool, and
	// deletes its reservation.
	ReleaseWhereabouts Kind = "release-whereabouts"
	// DeleteWhereaboutsReservation deletes a reservation that no pool's entry explains.
	DeleteWhereaboutsReservation Kind = "delete-whereabouts-reservation"
	// RestoreWhereabouts restores the pool's entry for a reservation in use.
	RestoreWhereabouts Kind = "restore-whereabouts"
	// SetStrictAffinity sets strict affinity in the IPAM configuration.
	SetStrictAffinity Kind = "set-strict-affinity"
)

// Request lists the repairs that a plan is to contain, with filters and consents.
type Request struct {
	EmptyBlocks       bool `json:"emptyBlocks,omitempty"`
	OrphanAffinities  bool `json:"orphanAffinities,omitempty"`
	MissingAffinities bool `json:"missingAffinities,omitempty"`
	LeakedIPs         bool `json:"leakedIPs,omitempty"`
	LeakedHandles     bool `json:"leakedHandles,omitempty"`
	SoftDeleted       bool `json:"softDeleted,omitempty"`
	DeadNodes         bool `json:"deadNodes,omitempty"`
	UnrecordedIPs     bool `json:"unrecordedIPs,omitempty"`
	MissingHandles    bool `json:"missingHandles,omitempty"`
	// Consolidate empties a block for a node that cannot allocate, and gives the block to
	// that node.
	Consolidate bool `json:"consolidate,omitempty"`
	// Rehome evicts pods that borrow although their node already has free addresses.
	Rehome bool `json:"rehome,omitempty"`
	// WhereaboutsStranded releases addresses of secondary networks whose pods no longer
	// exist. WhereaboutsReservations deletes reservations that no pool explains or, if
	// they are in use, restores their pool entries.
	WhereaboutsStranded     bool `json:"whereaboutsStranded,omitempty"`
	WhereaboutsReservations bool `json:"whereaboutsReservations,omitempty"`
	// AfterRestore is the stage of the repair after a restore; 0 if the plan is of another repair.
	AfterRestore Stage `json:"afterRestore,omitempty"`
	// StrictAffinity is the requested setting; nil means no change.
	StrictAffinity *bool `json:"strictAffinity,omitempty"`

	// Pools and Nodes select steps that concern any of them; empty means all.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
	// IPs and Blocks select steps about any of these addresses and any of these blocks;
	// empty means all.
	IPs    []netip.Addr   `json:"ips,omitempty"`
	Blocks []netip.Prefix `json:"blocks,omitempty"`
	// MaxSteps limits the number of steps; 0 means no limit. Steps beyond the limit are
	// refused by name.
	MaxSteps int `json:"maxSteps,omitempty"`
	// ObserveTwice distrusts all timestamps in objects, so that every step needs two
	// observations. Use it after a datastore was restored from a backup.
	ObserveTwice bool `json:"observeTwice,omitempty"`
	// AllowNewer allows steps although the cluster's Calico is newer than [blocks.NewestKnown].
	AllowNewer bool `json:"allowNewer,omitempty"`

	// Consents of the operator. Without a consent, a plan has no steps that require it.
	//
	// LastBlocks lets EmptyBlocks release the last block of a node that is cordoned or
	// idle while another node cannot allocate.
	LastBlocks bool `json:"lastBlocks,omitempty"`
	// Terminated lists nodes that the operator has confirmed are powered off. It has no
	// effect on Ready nodes.
	Terminated []string `json:"terminated,omitempty"`
	// WithoutHostEvidence allows the release of addresses without host views, if their
	// node still reports its status.
	WithoutHostEvidence bool `json:"withoutHostEvidence,omitempty"`
	// CordonFull allows cordons of nodes without free addresses of their own while a
	// block is emptied.
	CordonFull bool `json:"cordonFull,omitempty"`
	// EvictSingletons allows evictions of pods that have no other replica to take over
	// meanwhile.
	EvictSingletons bool `json:"evictSingletons,omitempty"`

	// Chosen is the consolidation of the plan, set when the plan is made.
	Chosen string `json:"-"`
}

// Plan contains steps, refusals and manual work. Everything in it is sorted, so that the
// same state and request give the same bytes.
type Plan struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Cluster    audit.ReportCluster `json:"cluster"`
	// CreatedAt is the time of the reading behind the plan, by the clock that ages are
	// counted from. It is the time of the first of two observations.
	CreatedAt audit.Time `json:"createdAt"`
	// Grace is how long a state must have lasted before a step may change it.
	Grace   Duration `json:"grace"`
	Request Request  `json:"request"`
	// Complete is false if parts of the cluster could not be read. Gaps lists them as
	// text.
	Complete bool     `json:"complete"`
	Gaps     []string `json:"gaps,omitempty"`
	// Warnings are about the plan as a whole.
	Warnings []string `json:"warnings,omitempty"`
	// MayFill lists nodes that may run out of their own addresses because pods move to
	// them.
	MayFill blocks.Names `json:"mayFill,omitempty"`

	Steps   []Step    `json:"steps"`
	Refused []Refusal `json:"refused"`
	Manual  []Manual  `json:"manual"`
	// Before has the current pools. After has the pools if every step were done and
	// nothing else changed.
	Before []audit.PoolReport `json:"before"`
	After  []audit.PoolReport `json:"after"`
	// AfterBlocks are the blocks as they would be then, for pictures; nil in a plan that was
	// read back.
	AfterBlocks []audit.BlockReport `json:"-"`
	// Strict is the effect of a change of strict affinity; nil without such a change.
	Strict *StrictPreview `json:"strictAffinity,omitempty"`
	// Digest is a checksum of all other fields, which detects edits: see [Plan.Intact].
	Digest string `json:"digest,omitempty"`
}

// Unapplicable explains why the plan cannot be applied, or returns "".
func (p *Plan) Unapplicable() string {
	switch {
	case p.Cluster.GUID == "":
		return "the cluster cannot be identified (no clusterGUID in ClusterInformation was read)"
	case p.CreatedAt.IsZero():
		return "it is not known when the cluster was read (give the time with --at)"
	}
	return ""
}

// Due is the time at which the second observation is due.
func (p *Plan) Due() audit.Time { return audit.Time{Time: p.CreatedAt.Add(p.Grace.Duration)} }

// OfFiles reports whether the plan was made from files. Its time is then the newest
// timestamp in the files and not an observation of the cluster.
func (p *Plan) OfFiles() bool { return p.Cluster.Datastore == "files" }

// Step is one change in a plan.
type Step struct {
	// ID identifies the step: its kind and its target's identity, such as
	// "release-block:10.0.0.64/26". It is the same in every plan with this step.
	ID     string        `json:"id"`
	Kind   Kind          `json:"kind"`
	Target state.Subject `json:"target"`
	// Because is the reason for the step, in one sentence.
	Because  string           `json:"because"`
	Evidence []state.Evidence `json:"evidence,omitempty"`
	// Guards are facts that must still hold when the step is carried out.
	Guards []Guard `json:"guards"`
	// TwoObservations requires that the state is seen twice, one grace period apart, with
	// unchanged identity and version. The plan is the first observation.
	TwoObservations bool `json:"twoObservations,omitempty"`
	// Apart is the minimum time between the two observations, if it is not the plan's
	// grace period; zero means the grace period.
	Apart Duration `json:"apart,omitzero"`
	// Pools and Nodes are the pools and nodes that the step concerns, for filters.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// Guard is a fact on which a step depends.
type Guard struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Names of guards. If an object must not exist, the guard's value is [Absent].
const (
	// GuardUID and GuardVersion pin the target object; GuardName is its name.
	GuardName    = "name"
	GuardUID     = "uid"
	GuardVersion = "resourceVersion"
	// GuardCreated is the target object's creation time. An object created later in its
	// place is a different one.
	GuardCreated = "created"
	// GuardBlock and GuardBlockUID pin the block of an affinity or address.
	GuardBlock    = "block"
	GuardBlockUID = "block.uid"
	// GuardOwner is the block's owner.
	GuardOwner = "owner"
	// The owner's affinity object for the block.
	GuardAffinity        = "affinity"
	GuardAffinityUID     = "affinity.uid"
	GuardAffinityVersion = "affinity.resourceVersion"
	GuardAffinityState   = "affinity.state"
	// GuardEmptySince is the latest time at which the block can have become empty.
	GuardEmptySince = "emptySince"
	// GuardHandle and GuardSequence pin an allocation by its handle and by the block's
	// sequence number when it was made.
	GuardHandle   = "handle"
	GuardSequence = "sequence"
	// GuardReplaces is the handle of an allocation that names another pod. With GuardSequence and
	// GuardAttributes, it pins that allocation.
	GuardReplaces = "replaces"
	// GuardSlot is the CIDR of the missing block of an address, GuardClaim the node that
	// claims the block, and GuardBeside the other addresses in use in it.
	GuardSlot   = "slot"
	GuardClaim  = "claim"
	GuardBeside = "beside"
	// GuardAttributes is a digest of both attribute maps of an allocation, because a
	// restarted virtual machine keeps its handle and sequence number.
	GuardAttributes = "attributes"
	// GuardMachineOff is the evidence that the machine which used an address is off: the
	// node's taint or the operator's confirmation.
	GuardMachineOff = "machineOff"
	// GuardCounts holds a handle's correct counts.
	GuardCounts = "counts"
	// GuardKeeps and GuardKeepsUID pin the block that the node keeps. It may be any block
	// that the node still keeps. Its version may change, because the block is in use.
	GuardKeeps    = "keeps"
	GuardKeepsUID = "keeps.uid"
	// GuardInstead lists the pools from which the node can claim another block, if it
	// keeps no block with free addresses.
	GuardInstead = "instead"
	// GuardHolder explains why the node does not need its last block. GuardFor is a node that
	// cannot allocate until the block is released.
	GuardHolder = "holder"
	GuardFor    = "for"
	// GuardStrict is the current setting.
	GuardStrict = "strictAffinity"
	// GuardStarves lists the nodes that cannot allocate with the new setting.
	GuardStarves = "starves"
	// GuardMayStarve lists further nodes, which may find no block if others claim the last ones first.
	GuardMayStarve = "mayStarve"
	// GuardContainer and GuardInterface, with GuardPod, pin an address of a secondary
	// network: its sandbox and interface as recorded.
	GuardContainer = "container"
	GuardInterface = "interface"
	// GuardReservation and GuardReservationUID pin the address's reservation.
	GuardReservation    = "reservation"
	GuardReservationUID = "reservation.uid"
)

// Absent is the value of a guard for an object that must not exist.
const Absent = "none"

// Guard returns the value of a guard, or "" if the step has no guard of that name.
func (s *Step) Guard(name string) string {
	for _, g := range s.Guards {
		if g.Name == name {
			return g.Value
		}
	}
	return ""
}

// Refusal is a change that the plan does not contain because it must not be made.
type Refusal struct {
	Kind   Kind          `json:"kind"`
	Target state.Subject `json:"target"`
	// Code is the reason for programs; Reason is the sentence for people.
	Code   RefusalCode `json:"code"`
	Reason string      `json:"reason"`
	Pools  []string    `json:"pools,omitempty"`
	Nodes  []string    `json:"nodes,omitempty"`
}

// RefusalCode is the reason of a refusal or skip, as one word.
type RefusalCode string

// Reasons to refuse a step in a plan.
const (
	RefusedLastBlock  RefusalCode = "LastBlock"       // the node would keep no block
	RefusedYoung      RefusalCode = "TooYoung"        // the state has not lasted for the grace period
	RefusedUnknownAge RefusalCode = "UnknownAge"      // the age of the state is unknown
	RefusedInUse      RefusalCode = "InUse"           // the object is in use
	RefusedHostView   RefusalCode = "HostView"        // a node's kernel contradicts
	RefusedLocked     RefusalCode = "DatastoreLocked" // Calico's datastore is locked
	RefusedCorrupt    RefusalCode = "Corrupt"         // the object contradicts itself
	RefusedSpecial    RefusalCode = "NotOurs"         // LoadBalancer, Windows, VM, Flannel migration, cooldown
	RefusedNotRead    RefusalCode = "NotRead"         // a read on which the verdict depends is missing
	RefusedVersion    RefusalCode = "NewerCalico"     // the cluster's Calico is newer than supported
	RefusedRejected   RefusalCode = "Rejected"        // Calico would reject the result
	RefusedConflict   RefusalCode = "Conflict"        // objects contradict each other
	RefusedHeals      RefusalCode = "Heals"           // Calico repairs it itself
	RefusedLimit      RefusalCode = "MaxSteps"        // beyond the limit of steps
	// RefusedUnknownOwner: the owner of the allocation cannot be looked up.
	RefusedUnknownOwner RefusalCode = "UnknownOwner"
	RefusedUnpinned     RefusalCode = "Unpinned"      // the object to write has no UID or resourceVersion
	RefusedNoAuto       RefusalCode = "NoAutoBlocks"  // automatic blocks are off, so no node would claim the block again
	RefusedMarked       RefusalCode = "MarkedDeleted" // a deletion was started and must be finished first
	// RefusedMachineMayRun: the node no longer exists or is NotReady, but its machine may
	// still run.
	RefusedMachineMayRun RefusalCode = "machine-may-run"
	// RefusedNoEvidence: no host view shows whether the address is in use.
	RefusedNoEvidence RefusalCode = "NoHostEvidence"
	// RefusedNowhere: no known node could start the pod without borrowing, or too few
	// nodes would remain to accept pods.
	RefusedNowhere RefusalCode = "NowhereToStart"
	// RefusedNotYet: another operation must end first.
	RefusedNotYet RefusalCode = "NotYet"
	// RefusedConsent: the step requires a consent that was not given.
	RefusedConsent RefusalCode = "NeedsConsent"
	// RefusedNothing: the repair found nothing to do.
	RefusedNothing RefusalCode = "NothingFound"
	// RefusedUnconfirmed: two consecutive readings differ.
	RefusedUnconfirmed RefusalCode = "Unconfirmed"
)

// Manual is work that only people should do.
type Manual struct {
	// Order counts from 1. Items with the same order may be done in any order.
	Order   int           `json:"order"`
	Target  state.Subject `json:"target"`
	Action  string        `json:"action"`
	Because string        `json:"because"`
	// Risk describes the cost of the action.
	Risk string `json:"risk,omitempty"`
	// Command is a command line for the action, if there is one.
	Command string `json:"command,omitempty"`
	// Then lists the commands that follow the action. Risk covers them, too.
	Then []string `json:"then,omitempty"`
}

// StrictPreview is the effect of a change of strict affinity.
type StrictPreview struct {
	From bool `json:"from"`
	To   bool `json:"to"`
	// Borrowers lists the addresses that are borrowed now. They stay borrowed until their
	// pods restart.
	Borrowers []string `json:"borrowers"`
	// Starve lists the nodes whose next pod would get no address.
	Starve blocks.Names `json:"starve"`
	// MayStarve lists further nodes whose next pod may get no address: other nodes may
	// claim the last blocks first, or no pod may be scheduled to the node now.
	MayStarve blocks.Names `json:"mayStarve"`
	// Unusable counts the free addresses that no node could use any more, in blocks
	// without an owner or without a node as owner. It is 0 if the setting is turned off.
	Unusable int `json:"unusableAddresses"`
	// Windows lists the Windows nodes, which require strict affinity.
	Windows []string `json:"windowsNodes"`
}

// Duration is a duration in Go's text format, such as "15m0s".
type Duration struct{ time.Duration }

// String formats the duration without zero units, such as "15m".
func (d Duration) String() string { return phrase.Duration(d.Duration) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.Duration.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	d.Duration = v
	return err
}

// Guards of a consolidation's steps.
const (
	// GuardConsolidation is the consolidation of a step. If one of its steps is not done,
	// the run tries no further steps of the consolidation, except to revert temporary
	// changes.
	GuardConsolidation = "consolidation"
	// GuardForNode is the node that gets the block.
	GuardForNode = "inNeed"
	// GuardPod and GuardPodUID are the pod to evict. GuardController is the UID of the
	// controller that replaces it.
	GuardPod        = "pod"
	GuardPodUID     = "pod.uid"
	GuardController = "controller.uid"
)

// Group returns the consolidation of a step, or "" for an independent step.
func (s *Step) Group() string { return s.Guard(GuardConsolidation) }

// GuardWhen is the condition under which the step is carried out; [WhenFull] is the only
// value.
const GuardWhen = "when"

// WhenFull is met when the node has no free address of its own left for a pod that moves.
const WhenFull = "full"

// Conditional reports whether the step is carried out only if its condition is met while
// the plan is applied.
func (s *Step) Conditional() bool { return s.Guard(GuardWhen) != "" }

// GuardWanted is the requested setting.
const GuardWanted = "strictAffinity.wanted"
