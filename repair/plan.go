package repair

import (
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// PlanKind is the kind of a plan as stored.
const PlanKind = "RepairPlan"

// Kind is a kind of step: one change, as small as it can be made.
type Kind string

// The kinds of step.
const (
	// ReleaseBlock deletes an empty block and its owner's affinity to it.
	ReleaseBlock Kind = "release-block"
	// DeleteAffinity deletes an affinity that no block bears out.
	DeleteAffinity Kind = "delete-affinity"
	// DisownBlock takes a vanished node's block in use away from it, with its affinity.
	DisownBlock Kind = "disown-block"
	// RestoreAffinity gives a block's owner its affinity object back.
	RestoreAffinity Kind = "restore-affinity"
	// RecordIP records an address that a live pod uses and no block records.
	RecordIP Kind = "record-ip"
	// ReleaseIP frees one address that nothing owns.
	ReleaseIP Kind = "release-ip"
	// DeleteHandle deletes a handle that no block refers to.
	DeleteHandle Kind = "delete-handle"
	// CreateHandle creates a handle that blocks refer to.
	CreateHandle Kind = "create-handle"
	// FixHandleCount writes the counts that the blocks record into a handle.
	FixHandleCount Kind = "fix-handle-count"
	// ReserveBlock keeps new pods off a block, by an IPReservation; UnreserveBlock takes
	// that back.
	ReserveBlock   Kind = "reserve-block"
	UnreserveBlock Kind = "unreserve-block"
	// CordonNode makes a node unschedulable for a while; UncordonNode takes that back.
	CordonNode   Kind = "cordon-node"
	UncordonNode Kind = "uncordon-node"
	// EvictPod has a pod start again elsewhere.
	EvictPod Kind = "evict-pod"
	// ClaimBlock makes an empty block for a node.
	ClaimBlock Kind = "claim-block"
	// FinishDelete deletes an object that was marked deleted and left.
	FinishDelete Kind = "finish-delete"
	// ReleaseWhereabouts takes an address of a secondary network out of its pool, with its
	// reservation.
	ReleaseWhereabouts Kind = "release-whereabouts"
	// DeleteWhereaboutsReservation deletes a reservation that no pool explains.
	DeleteWhereaboutsReservation Kind = "delete-whereabouts-reservation"
	// RestoreWhereabouts puts the pool's entry of a reservation in use back.
	RestoreWhereabouts Kind = "restore-whereabouts"
	// SetStrictAffinity writes the setting into the IPAM configuration.
	SetStrictAffinity Kind = "set-strict-affinity"
)

// Request is what a plan is asked for.
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
	// Consolidate empties a block for a node that cannot allocate, and gives it the block.
	Consolidate bool `json:"consolidate,omitempty"`
	// Rehome evicts pods that borrow though their node has addresses by now.
	Rehome bool `json:"rehome,omitempty"`
	// WhereaboutsStranded releases what pods that are gone have left of secondary networks;
	// WhereaboutsReservations is for reservations of such networks that no pool explains.
	WhereaboutsStranded     bool `json:"whereaboutsStranded,omitempty"`
	WhereaboutsReservations bool `json:"whereaboutsReservations,omitempty"`
	// StrictAffinity is the setting asked for; nil leaves it alone.
	StrictAffinity *bool `json:"strictAffinity,omitempty"`

	// Pools and Nodes narrow the steps to those that concern any of them; empty
	// for all.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
	// IPs and Blocks narrow the steps to those about any of these addresses, and of these
	// blocks; empty for all.
	IPs    []netip.Addr   `json:"ips,omitempty"`
	Blocks []netip.Prefix `json:"blocks,omitempty"`
	// MaxSteps bounds the number of steps; 0 for no bound. What it cuts off is
	// refused by name.
	MaxSteps int `json:"maxSteps,omitempty"`
	// ObserveTwice trusts no age that is written in an object: every step then
	// needs two observations. It is for the time after a datastore was restored
	// from a backup.
	ObserveTwice bool `json:"observeTwice,omitempty"`
	// AllowNewer lets steps through although the cluster's Calico is newer than
	// [NewestKnown].
	AllowNewer bool `json:"allowNewer,omitempty"`

	// Consents of the operator, without which no plan has the steps that need them.
	//
	// LastBlocks lets EmptyBlocks release the last block of a node that is cordoned or
	// idle, while another node cannot allocate.
	LastBlocks bool `json:"lastBlocks,omitempty"`
	// Terminated are the nodes whose machines he knows to be off. It has no effect for
	// one that is Ready.
	Terminated []string `json:"terminated,omitempty"`
	// WithoutHostEvidence lets addresses be released that no node was asked about, as
	// long as their node answers for itself.
	WithoutHostEvidence bool `json:"withoutHostEvidence,omitempty"`
	// CordonFull lets nodes without addresses of their own be cordoned while a block is
	// emptied.
	CordonFull bool `json:"cordonFull,omitempty"`
	// EvictSingletons lets pods be evicted that nothing stands in for meanwhile.
	EvictSingletons bool `json:"evictSingletons,omitempty"`

	// Chosen names the consolidation that a plan is about, once it is made.
	Chosen string `json:"-"`
}

// Plan is what would be done, what must not be, and what people should do.
// Everything in it is sorted: the same state and request give the same bytes.
type Plan struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Cluster    audit.ReportCluster `json:"cluster"`
	// CreatedAt is the time of the reading that the plan was made of, by the
	// clock that ages are counted from: the first of two observations.
	CreatedAt audit.Time `json:"createdAt"`
	// Grace is how long a state must have held before it is acted on.
	Grace   Duration `json:"grace"`
	Request Request  `json:"request"`
	// Complete is false if something could not be read; Gaps says what, in words.
	Complete bool     `json:"complete"`
	Gaps     []string `json:"gaps,omitempty"`
	// Warnings are remarks about the plan as a whole.
	Warnings []string `json:"warnings,omitempty"`
	// MayFill are the nodes that may run out of addresses of their own while pods move to them.
	MayFill []string `json:"mayFill,omitempty"`

	Steps   []Step    `json:"steps"`
	Refused []Refusal `json:"refused"`
	Manual  []Manual  `json:"manual"`
	// Before and After are the pools as they are, and as they would be if every
	// step were done and nothing else happened.
	Before []audit.PoolReport `json:"before"`
	After  []audit.PoolReport `json:"after"`
	// Strict is what a change of strict affinity would mean; nil without one.
	Strict *StrictPreview `json:"strictAffinity,omitempty"`
	// Digest is a checksum of all the rest, by which a plan that was edited is told:
	// see [Plan.Intact].
	Digest string `json:"digest,omitempty"`
}

// Unapplicable explains why no run can apply the plan; empty if one may.
func (p *Plan) Unapplicable() string {
	switch {
	case p.Cluster.GUID == "":
		return "the cluster does not say which it is (no clusterGUID in ClusterInformation was read)"
	case p.CreatedAt.IsZero():
		return "it is not known when the cluster was read (--at says it)"
	}
	return ""
}

// OfFiles reports whether the plan was made of files. Its time is then the newest that
// the files name, and no observation of the cluster.
func (p *Plan) OfFiles() bool { return p.Cluster.Datastore == "files" }

// Step is one change.
type Step struct {
	// ID names the step within its plan: its kind and its target's identity, such
	// as "release-block:10.0.0.64/26". It is the same in every plan that holds
	// the step.
	ID     string        `json:"id"`
	Kind   Kind          `json:"kind"`
	Target state.Subject `json:"target"`
	// Because says why, in one sentence.
	Because  string           `json:"because"`
	Evidence []state.Evidence `json:"evidence,omitempty"`
	// Guards are the facts that must still hold when the step is carried out.
	Guards []Guard `json:"guards"`
	// TwoObservations is true if the state must be seen twice, one grace period apart, at
	// unchanged identity and version: the plan is the first time.
	TwoObservations bool `json:"twoObservations,omitempty"`
	// Apart is how far apart the two observations are at least, where that is not the
	// plan's grace; zero for the grace alone.
	Apart Duration `json:"apart,omitzero"`
	// Pools and Nodes are those that the step concerns, for filters.
	Pools []string `json:"pools,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// Guard is a fact that a step stands on.
type Guard struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The names of guards. A guard whose fact is that an object does not exist has
// the value [Absent].
const (
	// GuardUID and GuardVersion pin the target object, GuardName its name.
	GuardName    = "name"
	GuardUID     = "uid"
	GuardVersion = "resourceVersion"
	// GuardCreated is when the target object was made. One that was made later in
	// its place is another.
	GuardCreated = "created"
	// GuardBlock and GuardBlockUID pin the block that an affinity or an address belongs to.
	GuardBlock    = "block"
	GuardBlockUID = "block.uid"
	// GuardOwner is the owner that the block names.
	GuardOwner = "owner"
	// The owner's affinity object to the block.
	GuardAffinity        = "affinity"
	GuardAffinityUID     = "affinity.uid"
	GuardAffinityVersion = "affinity.resourceVersion"
	GuardAffinityState   = "affinity.state"
	// GuardEmptySince is the latest time at which the block can have become empty.
	GuardEmptySince = "emptySince"
	// GuardHandle and GuardSequence pin an allocation: its handle, and the block's
	// sequence number at the time it was made.
	GuardHandle   = "handle"
	GuardSequence = "sequence"
	// GuardClaim is the node that the missing block of an address, GuardSlot, is claimed
	// for.
	GuardSlot   = "slot"
	GuardClaim  = "claim"
	GuardBeside = "beside"
	// GuardAttributes is a digest of both attribute maps of an allocation: a virtual
	// machine that starts again keeps handle and sequence number.
	GuardAttributes = "attributes"
	// GuardMachineOff is the evidence that the machine which had an address is off: the
	// taint or the operator's word.
	GuardMachineOff = "machineOff"
	// GuardCounts are a handle's counts as they should be.
	GuardCounts = "counts"
	// GuardKeeps and GuardKeepsUID pin the block that the node keeps. It may be any
	// that is still kept: its version does not matter, for it is in use.
	GuardKeeps    = "keeps"
	GuardKeepsUID = "keeps.uid"
	// GuardInstead names the pools of which the node can claim another block, if it keeps
	// none with room.
	GuardInstead = "instead"
	// GuardHolder is how the node whose last block it is does without, and GuardFor a
	// node that cannot allocate until the block is released.
	GuardHolder = "holder"
	GuardFor    = "for"
	// GuardStrict is the setting before.
	GuardStrict = "strictAffinity"
	// GuardStarves names the nodes that the setting leaves without addresses.
	GuardStarves = "starves"
	// GuardContainer and GuardInterface pin an address of a secondary network, with
	// GuardPod: the sandbox and the interface that it is recorded for.
	GuardContainer = "container"
	GuardInterface = "interface"
	// GuardReservation and GuardReservationUID pin its reservation.
	GuardReservation    = "reservation"
	GuardReservationUID = "reservation.uid"
)

// Absent is the value of a guard whose object must not exist.
const Absent = "none"

// Guard returns the value of a guard; "" if the step has none of that name.
func (s *Step) Guard(name string) string {
	for _, g := range s.Guards {
		if g.Name == name {
			return g.Value
		}
	}
	return ""
}

// Refusal is something that a plan could have done and must not.
type Refusal struct {
	Kind   Kind          `json:"kind"`
	Target state.Subject `json:"target"`
	// Code is one word for programs, Reason the sentence for people.
	Code   RefusalCode `json:"code"`
	Reason string      `json:"reason"`
	Pools  []string    `json:"pools,omitempty"`
	Nodes  []string    `json:"nodes,omitempty"`
}

// RefusalCode is why something is refused or skipped, in one word.
type RefusalCode string

// Why something is refused in a plan.
const (
	RefusedLastBlock  RefusalCode = "LastBlock"       // its node would keep no block
	RefusedYoung      RefusalCode = "TooYoung"        // the state has not held for the grace
	RefusedUnknownAge RefusalCode = "UnknownAge"      // nothing tells how long it has held
	RefusedInUse      RefusalCode = "InUse"           // something uses it
	RefusedHostView   RefusalCode = "HostView"        // a node's kernel contradicts
	RefusedLocked     RefusalCode = "DatastoreLocked" // Calico's datastore is locked
	RefusedCorrupt    RefusalCode = "Corrupt"         // the object contradicts itself
	RefusedSpecial    RefusalCode = "NotOurs"         // LoadBalancer, Windows, VM, Flannel migration, cooldown
	RefusedNotRead    RefusalCode = "NotRead"         // a read that the verdict needs is missing
	RefusedVersion    RefusalCode = "NewerCalico"     // this Calico is newer than is known
	RefusedRejected   RefusalCode = "Rejected"        // Calico would reject the result
	RefusedConflict   RefusalCode = "Conflict"        // objects contradict one another
	RefusedHeals      RefusalCode = "Heals"           // Calico heals it by itself
	RefusedLimit      RefusalCode = "MaxSteps"        // cut off by the bound on steps
	// RefusedUnknownOwner: it names no owner that could be looked up.
	RefusedUnknownOwner RefusalCode = "UnknownOwner"
	RefusedUnpinned     RefusalCode = "Unpinned"      // nothing identifies what would be written
	RefusedNoAuto       RefusalCode = "NoAutoBlocks"  // automatic blocks are off: no node would claim it again
	RefusedMarked       RefusalCode = "MarkedDeleted" // a deletion was begun, which has to be finished first
	// RefusedMachineMayRun: its node is gone or NotReady, and its machine may run on.
	RefusedMachineMayRun RefusalCode = "machine-may-run"
	// RefusedNoEvidence: no node was asked whether it uses the address.
	RefusedNoEvidence RefusalCode = "NoHostEvidence"
	// RefusedNowhere: no node is known where a pod would start again without borrowing, or too
	// few would be left to take pods.
	RefusedNowhere RefusalCode = "NowhereToStart"
	// RefusedNotYet: something else has to end first.
	RefusedNotYet RefusalCode = "NotYet"
	// RefusedConsent: it needs a consent that was not given.
	RefusedConsent RefusalCode = "NeedsConsent"
	// RefusedNothing: nothing was found that the kind of repair is for.
	RefusedNothing RefusalCode = "NothingFound"
	// RefusedUnconfirmed: two readings, one right after the other, do not agree.
	RefusedUnconfirmed RefusalCode = "Unconfirmed"
)

// Manual is something that only people should do.
type Manual struct {
	// Order counts from 1; what has the same order may be done in any order.
	Order   int           `json:"order"`
	Target  state.Subject `json:"target"`
	Action  string        `json:"action"`
	Because string        `json:"because"`
	// Risk says what the action costs.
	Risk string `json:"risk,omitempty"`
	// Command is a command line for it, where there is one.
	Command string `json:"command,omitempty"`
	// Then are the commands that follow once it is done, whose risk Risk tells, too.
	Then []string `json:"then,omitempty"`
}

// StrictPreview is what a change of strict affinity would mean.
type StrictPreview struct {
	From bool `json:"from"`
	To   bool `json:"to"`
	// Borrowers are the addresses borrowed now; they stay borrowed until their
	// pods restart.
	Borrowers []string `json:"borrowers"`
	// Starve are the nodes whose next pod would get no address.
	Starve []string `json:"starve"`
	// MayStarve are further nodes whose next pod may get no address: others may claim the
	// last blocks first, or no pod may come to the node now.
	MayStarve []string `json:"mayStarve"`
	// Unusable counts the free addresses that no node could use any more: those
	// of blocks whose owner is no one, or no node. 0 where the setting goes off.
	Unusable int `json:"unusableAddresses"`
	// Windows are the Windows nodes, which need strict affinity.
	Windows []string `json:"windowsNodes"`
}

// Duration is a time span that is written as Go does, such as "15m0s".
type Duration struct{ time.Duration }

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	d.Duration = v
	return err
}

// The guards of a consolidation's steps.
const (
	// GuardConsolidation names the consolidation that a step belongs to. Where one of its
	// steps is not done, the others are not tried but those that take back what was made
	// for it.
	GuardConsolidation = "consolidation"
	// GuardForNode is the node that is to get the block.
	GuardForNode = "inNeed"
	// GuardPod and GuardPodUID are the pod to evict, GuardController the UID of what
	// makes another in its place.
	GuardPod        = "pod"
	GuardPodUID     = "pod.uid"
	GuardController = "controller.uid"
)

// Group names what a step stands or falls with; "" for a step by itself.
func (s *Step) Group() string { return s.Guard(GuardConsolidation) }

// GuardWhen says what must come about for the step to be carried out; [WhenFull] is the
// only value.
const GuardWhen = "when"

// WhenFull is when the node has no free address of its own left for a pod that moves.
const WhenFull = "full"

// Conditional reports whether the step is carried out only if something comes about while
// the plan is carried out.
func (s *Step) Conditional() bool { return s.Guard(GuardWhen) != "" }

// GuardWanted is the setting that is asked for.
const GuardWanted = "strictAffinity.wanted"
