package repair

import "slices"

// RequestKind is a kind of repair that can be requested.
type RequestKind struct {
	// Flag is the command's flag, Help its description, and Answers the checks whose
	// findings it ends.
	Flag, Help, Answers string
	// Field returns the request's field for this repair; nil for the setting, whose flag
	// has a value.
	Field func(*Request) *bool
	// Steps lists the kinds of step that the repair may use, its main kind first.
	Steps []Kind
	// Idle explains why a plan is empty; "" if [StepKind.Idle] of the first step does.
	Idle string
}

// Requests lists the kinds of repair in the order of help texts.
var Requests = []RequestKind{
	{
		"empty-blocks", "release empty blocks that no node has to keep", "block/empty, block/dead-node",
		func(r *Request) *bool { return &r.EmptyBlocks }, []Kind{ReleaseBlock}, "no empty block was found",
	},
	{
		"orphan-affinities", "delete affinities whose block does not exist or belongs to another node", "affinity/no-block, affinity/not-owner, affinity/dead-node",
		func(r *Request) *bool { return &r.OrphanAffinities }, []Kind{DeleteAffinity, ReleaseBlock}, "no affinity without a block of its node was found",
	},
	{
		"missing-affinities", "restore the missing BlockAffinity of blocks", "block/no-affinity",
		func(r *Request) *bool { return &r.MissingAffinities }, []Kind{RestoreAffinity}, "each block's owner has the affinity to it",
	},
	{
		"leaked-ips", "free addresses that nothing owns", "ip/leaked",
		func(r *Request) *bool { return &r.LeakedIPs }, []Kind{ReleaseIP}, "no leaked address was found",
	},
	{
		"leaked-handles", "delete handles that no block refers to, and correct the counts of others", "handle/leaked, handle/count",
		func(r *Request) *bool { return &r.LeakedHandles }, []Kind{DeleteHandle, FixHandleCount}, "no leaked handle and no wrong count was found",
	},
	{
		"dead-nodes", "clean up after nodes that no longer exist: empty blocks, affinities, and blocks that only pods of other nodes use", "block/dead-node, affinity/dead-node",
		func(r *Request) *bool { return &r.DeadNodes }, []Kind{ReleaseBlock, DeleteAffinity, DisownBlock}, "no block and no affinity of a node that no longer exists was found",
	},
	{
		"unrecorded-ips", "record addresses that live pods use and no block records for them, for example after a restore of the datastore", "ip/unallocated, ip/wrong-pod",
		func(r *Request) *bool { return &r.UnrecordedIPs }, []Kind{RecordIP}, "every address of a live pod is recorded for it",
	},
	{
		"missing-handles", "create handles that blocks refer to and that do not exist", "handle/missing",
		func(r *Request) *bool { return &r.MissingHandles }, []Kind{CreateHandle}, "every handle that blocks refer to exists",
	},
	{
		"soft-deleted", "finish deletions that stopped half-way", "block/soft-deleted",
		func(r *Request) *bool { return &r.SoftDeleted }, []Kind{FinishDelete}, "nothing is marked deleted",
	},
	{
		"whereabouts-stranded", "release addresses of secondary networks (Whereabouts) whose pods no longer exist or no longer use them", "whereabouts/stranded, whereabouts/stale, whereabouts/reservation-only",
		func(r *Request) *bool { return &r.WhereaboutsStranded }, []Kind{ReleaseWhereabouts, DeleteWhereaboutsReservation}, "every address of a secondary network is recorded for a pod that still uses it",
	},
	{
		"whereabouts-reservations", "where only the reservation of an address (Whereabouts) is left, record the address in its pool again if a live pod has it, else delete the reservation", "whereabouts/reservation-only",
		func(r *Request) *bool { return &r.WhereaboutsReservations }, []Kind{RestoreWhereabouts, DeleteWhereaboutsReservation}, "no reservation of a secondary network lacks its pool's record",
	},
	{
		"consolidate", "move the pods out of a block of a node that has several, and give it to a node that can get none", "node/no-block",
		func(r *Request) *bool { return &r.Consolidate }, []Kind{ReserveBlock, CordonNode, EvictPod, ReleaseBlock, ClaimBlock, UnreserveBlock, UncordonNode}, "",
	},
	{
		"rehome", "evict pods that borrow their address, if their replacements can get one of their own node's blocks", "ip/borrowed",
		func(r *Request) *bool { return &r.Rehome }, []Kind{EvictPod, CordonNode, UncordonNode}, "",
	},
	{"strict-affinity", "set strict affinity", "config/strict-affinity", nil, []Kind{SetStrictAffinity}, ""},
}

// In reports whether a request includes this repair.
func (q *RequestKind) In(r *Request) bool {
	if q.Field == nil {
		return r.StrictAffinity != nil
	}
	return *q.Field(r)
}

// Asks reports whether the request may lead to steps of a kind.
func (r *Request) Asks(k Kind) bool {
	return slices.ContainsFunc(Requests, func(q RequestKind) bool { return q.In(r) && slices.Contains(q.Steps, k) })
}

// Evicts reports whether the request may lead to evictions. They require reads of
// PodDisruptionBudgets and of pods' labels.
func (r *Request) Evicts() bool { return r.Asks(EvictPod) }
