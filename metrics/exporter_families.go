package metrics

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

const exporterPrefix = "calico_audit_"

// Label values for the absence of an object.
const (
	// noPool is the label ippool of blocks and addresses outside all pools.
	noPool = "none"
	// noNode is the label node of blocks and addresses without a node.
	noNode = "none"
)

// slotReads are the resources behind the numbers of blocks and available addresses.
var slotReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations}

// borrowReads are the resources behind the numbers of borrowed addresses. Nodes and pods
// are needed because an allocation may name a deleted node, or not the node on which its
// pod runs.
var borrowReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods}

var (
	poolGroup = Group{
		Title: "Pools", prefix: exporterPrefix, stable: true,
		About: "Each pool has all of these, but for those that a block that cannot be decoded would change. Counts of IPv6 pools may be larger than the 53 bits that a sample holds exactly; " +
			"such a sample is the nearest number that it can hold, so that ratios are good and small differences are not. " +
			"`/report.json` has every digit.",
	}
	poolInfo = poolGroup.gauge("pool_info", "", "What the pool is. The value is always 1. workloads is true if pods may get addresses of the pool without asking for it: "+
		"it is enabled, allows workloads, and assigns automatically.", "ippool", "ip_family", "cidr", "block_size", "workloads").unstable().with(blocks.Pools)
	poolCapacity = poolGroup.gauge("pool_capacity_addresses", "addresses", "Addresses of the pool's CIDR.", "ippool", "ip_family").with(blocks.Pools)
	poolInUse    = poolGroup.gauge("pool_in_use_addresses", "addresses",
		"Addresses of the pool that are allocated, those that cool down or that Windows nodes keep back included.", "ippool", "ip_family").with(blocks.Pools, blocks.Blocks)
	poolReserved = poolGroup.gauge("pool_reserved_addresses", "addresses",
		"Addresses of the pool that IPReservations cover, in use or not.", "ippool", "ip_family").with(blocks.Pools, blocks.Reservations)
	poolAvailable = poolGroup.gauge("pool_available_addresses", "addresses",
		"Addresses of the pool that are neither in use nor reserved.", "ippool", "ip_family").with(slotReads...)
	poolBorrowed = poolGroup.gauge("pool_borrowed_addresses", "addresses",
		"Addresses of the pool that are used on another node than their block's owner.", "ippool", "ip_family").unstable().with(borrowReads...)
	poolBlocks = poolGroup.gauge("pool_blocks", "blocks",
		"Blocks that the pool divides into, by state: claimed (a block that exists covers or overlaps it), reserved (wholly, and not claimed), or free. Each counts once.",
		"ippool", "ip_family", "state").with(slotReads...)
	poolAllocatable = poolGroup.gauge("pool_allocatable_blocks", "blocks",
		"Blocks that Calico's allocator would still let a node claim. It compares exact CIDRs only, so that this exceeds the free ones where blocks of another size lie in the pool.",
		"ippool", "ip_family").with(slotReads...)
	poolReleasable = poolGroup.gauge("pool_releasable_blocks", "blocks",
		"Claimed blocks that calico-audit repair --empty-blocks would release now.", "ippool", "ip_family").with(state.ReleaseReads...)
	poolNeeded = poolGroup.gauge("pool_needed_blocks", "blocks",
		"Blocks that the nodes that the pool selects will need when they run as many pods as they may. 0 for a pool that pods do not get addresses from by themselves.",
		"ippool", "ip_family").with(blocks.Pools, blocks.Nodes)
)

var (
	runwayGroup = Group{
		Title: "Runway", prefix: exporterPrefix, stable: true,
		About: "An exporter that asks a Prometheus for the past of pools (`--prometheus`) has these. A pool whose blocks, or addresses, do not get fewer " +
			"lastingly, or of which too little is known, has no such series. Without `--prometheus`, the recording rule `calico_audit:pool_runway_seconds:current` estimates them.",
	}
	poolRunway = runwayGroup.gauge("pool_runway_seconds", "seconds", "Time, in whole days, until the pool's blocks, or addresses, run out (0 if none is left, half a day if they last for less than one): likely at the rate of the last month, "+
		"and the range from earliest to latest, where enough is known.", "ippool", "ip_family", "resource", "bound").with(slotReads...)
	runwayTime = runwayGroup.gauge("runway_timestamp_seconds", "seconds", "When the past of pools was last read from Prometheus, in seconds since 1970. Absent for as long as it is not known.")
)

var (
	nodeGroup = Group{
		Title: "Nodes", prefix: exporterPrefix, stable: true,
		About: "The series with a label `node` can be switched off with `--node-metrics=false`. A node has series for the pools that serve its pods " +
			"and for those in which it has anything; hosts that own blocks and are no node are among them. Series that a block that cannot be decoded would change are absent. `ippool=\"none\"` is what lies outside all pools.",
	}
	nodeBlocks   = nodeGroup.gauge("node_blocks", "blocks", "Blocks that the node owns; node=\"none\" has those that no node owns.", "node", "ippool").with(blocks.Pools, blocks.Blocks)
	nodeEmpty    = nodeGroup.gauge("node_empty_blocks", "blocks", "Blocks that the node owns and that hold no allocation.", "node", "ippool").with(blocks.Pools, blocks.Blocks)
	nodeBorrowed = nodeGroup.gauge("node_borrowed_addresses", "addresses", "Addresses of other nodes' blocks that the node uses.", "node", "ippool").with(borrowReads...)
	nodeLent     = nodeGroup.gauge("node_lent_addresses", "addresses", "Addresses of the node's blocks that other nodes use.", "node", "ippool").with(borrowReads...)
	nodeInUse    = nodeGroup.gauge("node_in_use_addresses", "addresses",
		"Allocated addresses by the node that the allocation names (none: it names none) and by who owns the block: self, the same node; other, another node; none, no node. "+
			"Series with other and none exist where there are any.",
		"node", "ippool", "block_owner").unstable().with(blocks.Pools, blocks.Blocks)
	nodesWithout = nodeGroup.gauge("nodes_without_block", "nodes",
		"Schedulable nodes that own no block of the family, in whatever pool. 0 for a family of which no pod has an address.", "ip_family").
		with(blocks.Blocks, blocks.Nodes, blocks.Pods)
)

var (
	secondaryGroup = Group{
		Title: "Whereabouts", prefix: exporterPrefix,
		About: "The pools of secondary networks; none where Whereabouts is not installed. Its findings are among the others, under `whereabouts/…`. " +
			"Where a network divides its range among nodes, each node has a pool; those are switched off by `--node-metrics=false`, too.",
	}
	secondaryInUse = secondaryGroup.gauge("whereabouts_pool_in_use_addresses", "addresses", "Addresses that the pool records.", secondaryLabels...).
			with(blocks.WhereaboutsPools)
	secondaryCapacity = secondaryGroup.gauge("whereabouts_pool_capacity_addresses", "addresses",
		"Addresses of the pool that can be assigned, in use or not: the range without its first and last address and without what the network attachment leaves out. "+
			"Absent for a range of more than 32 bits, which is not used up.", secondaryLabels...).with(secondaryReads...)
	secondaryAvailable = secondaryGroup.gauge("whereabouts_pool_available_addresses", "addresses",
		"Addresses of these that are not in use. Absent where the capacity is.", secondaryLabels...).with(secondaryReads...)
)

var (
	secondaryLabels = []string{"whereabouts_pool", "network", "ip_family"}
	secondaryReads  = []blocks.Resource{blocks.WhereaboutsPools, blocks.NetworkAttachments}
)

var (
	findingGroup = Group{
		Title: "Findings", prefix: exporterPrefix, stable: true,
		About: "`check` is the ID of a check in [CHECKS.md](../audit/CHECKS.md). A check that gave a verdict has a series for each severity, 0 among them; " +
			"one that did not has none, and `calico_audit_check_success` 0. A check that leaves out single objects, which the report names, gave a verdict. " +
			"Checks of what nodes themselves tell (" + hostViewChecks() + ") have no series of this section at all, not even `calico_audit_check_success`, " +
			"unless there are host views, which an exporter has with `--agents`.",
	}
	findings          = findingGroup.gauge("findings", "findings", "Findings that are not muted.", "check", "severity")
	findingsMuted     = findingGroup.gauge("findings_muted", "findings", "Findings that rules (--ignore) mute. They count nowhere else.")
	findingsUnsure    = findingGroup.gauge("findings_unconfirmed", "findings", "Findings at error or critical that rest on something not being there, and are withheld until a second reading confirms them.").unstable()
	checkSuccess      = findingGroup.gauge("check_success", "", "1 if the check gave a verdict, 0 if something that it needs could not be read or it failed.", "check")
	checkTook         = findingGroup.gauge("check_duration_seconds", "seconds", "How long the check took in the last audit.", "check")
	datastoreIsLocked = findingGroup.gauge("datastore_locked", "", "1 if the datastore is locked, so that no pod can get an address; else 0.").unstable().with(blocks.ClusterInfos)
)

var (
	stateGroup = Group{
		Title: "The exporter", prefix: exporterPrefix, stable: true,
		About: "Besides these there are the usual metrics of Go programs and processes (`go_`, `process_`). Alert on the age, " +
			"`time() - calico_audit_snapshot_timestamp_seconds`, and on `calico_audit_snapshot_complete == 0` beside every alert on the state.",
	}
	snapshotTime       = stateGroup.gauge("snapshot_timestamp_seconds", "seconds", "The time as of which everything here is known, in seconds since 1970, by the API server's clock. It stands still while the API server cannot be reached.")
	snapshotComplete   = stateGroup.gauge("snapshot_complete", "", "1 if everything that an audit reads was read and is up to date, else 0.")
	snapshotGaps       = stateGroup.gauge("snapshot_gaps", "gaps", "What could not be read, or is no longer known to be up to date. The report names each.").unstable()
	auditTook          = stateGroup.gauge("audit_duration_seconds", "seconds", "How long the last audit took.").unstable()
	auditsTotal        = stateGroup.counter("audits_total", "audits", "Audits since the exporter started.")
	auditErrorsTotal   = stateGroup.counter("audit_errors_total", "errors", "Checks that failed inside the program, and second readings that could not be made.")
	secondReadingTotal = stateGroup.counter("second_readings_total", "readings", "Second readings that were made to confirm findings.").unstable()
	watchRestartsTotal = stateGroup.counter("watch_restarts_total", "restarts", "Watches that had to be begun again for another reason than their planned end.", "resource")
	buildInfo          = stateGroup.gauge("build_info", "", "What the exporter is built from. The value is always 1.", "version", "revision", "goversion")
)

var (
	viewGroup = Group{
		Title: "Host views", prefix: exporterPrefix, stable: true,
		About: "An exporter that asks the nodes' agents (`--agents`) has these. The report names each node without a view, and why.",
	}
	viewsAsked  = viewGroup.counter("host_view_requests_total", "requests", "Questions to the nodes' agents.")
	viewsFailed = viewGroup.counter("host_view_errors_total", "requests", "Questions to the nodes' agents that brought no host view.")
	viewsFresh  = viewGroup.gauge("host_views", "nodes", "Nodes with a host view that is not older than 10 minutes.")
	viewsOldest = viewGroup.gauge("host_view_oldest_timestamp_seconds", "seconds", "When the oldest of these was taken, in seconds since 1970, by its node's clock. Absent while there is none.")
	viewsLack   = viewGroup.gauge("nodes_without_host_view", "nodes", "Nodes that are Ready and run Linux, and have no host view that is not older than 10 minutes: what they do is not known.")
)

// exporterGroups are the sections of METRICS.md that describe the exporter.
var exporterGroups = []*Group{&poolGroup, &runwayGroup, &nodeGroup, &secondaryGroup, &findingGroup, &stateGroup, &viewGroup}

// slotStates are the values of the label state.
var slotStates = []string{"claimed", "free", "reserved"}

// Groups returns the sections of METRICS.md, in order.
func Groups() []*Group { return append(slices.Clone(exporterGroups), &agentGroup) }

// hostViewChecks lists the checks that require host views, in Markdown.
func hostViewChecks() string {
	var ids []string
	for _, c := range checks.All {
		if c.HostViews {
			ids = append(ids, "`"+c.ID+"`")
		}
	}
	return strings.Join(ids, ", ")
}
