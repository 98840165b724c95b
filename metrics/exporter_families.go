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
		About: "Every pool has these series. If a block cannot be decoded, the series that it would change are absent. A sample holds 53 bits exactly; larger counts of IPv6 pools are rounded, " +
			"which affects small differences but not ratios. `/report.json` has every digit.",
	}
	poolInfo = poolGroup.gauge("pool_info", "", "Properties of the pool. The value is always 1. workloads is true if pods may get addresses of the pool without asking for it: "+
		"the pool is enabled, allows workloads, and assigns automatically.", "ippool", "ip_family", "cidr", "block_size", "workloads").unstable().with(blocks.Pools)
	poolCapacity = poolGroup.gauge("pool_capacity_addresses", "addresses", "Addresses of the pool's CIDR.", "ippool", "ip_family").with(blocks.Pools)
	poolInUse    = poolGroup.gauge("pool_in_use_addresses", "addresses",
		"Allocated addresses of the pool, including addresses in cooldown and those reserved by Windows nodes.", "ippool", "ip_family").with(blocks.Pools, blocks.Blocks)
	poolReserved = poolGroup.gauge("pool_reserved_addresses", "addresses",
		"Addresses of the pool that IPReservations cover, whether in use or not.", "ippool", "ip_family").with(blocks.Pools, blocks.Reservations)
	poolAvailable = poolGroup.gauge("pool_available_addresses", "addresses",
		"Addresses of the pool that are neither in use nor reserved.", "ippool", "ip_family").with(slotReads...)
	poolBorrowed = poolGroup.gauge("pool_borrowed_addresses", "addresses",
		"Addresses of the pool that are used on a node other than the owner of their block.", "ippool", "ip_family").unstable().with(borrowReads...)
	poolBlocks = poolGroup.gauge("pool_blocks", "blocks",
		"Block-sized slots of the pool by state: claimed (an existing block covers or overlaps the slot), reserved (wholly reserved and not claimed) or free. Each slot counts once.",
		"ippool", "ip_family", "state").with(slotReads...)
	poolAllocatable = poolGroup.gauge("pool_allocatable_blocks", "blocks",
		"Blocks that Calico's allocator would still let a node claim. The allocator compares exact CIDRs, so this exceeds the free slots if the pool has blocks of another size.",
		"ippool", "ip_family").with(slotReads...)
	poolReleasable = poolGroup.gauge("pool_releasable_blocks", "blocks",
		"Claimed blocks that calico-audit repair --empty-blocks would release now.", "ippool", "ip_family").with(state.ReleaseReads...)
	poolNeeded = poolGroup.gauge("pool_needed_blocks", "blocks",
		"Blocks that the pool's nodes will need when they run as many pods as they may. 0 for a pool from which pods get no addresses automatically.",
		"ippool", "ip_family").with(blocks.Pools, blocks.Nodes)
)

var (
	nodeGroup = Group{
		Title: "Nodes", prefix: exporterPrefix, stable: true,
		About: "`--node-metrics=false` turns off the series with a label `node`. A node has series for the pools that serve its pods " +
			"and for those in which it holds blocks or addresses. Hosts without a Node object that own blocks are included. If a block cannot be decoded, the series that it would change are absent. `ippool=\"none\"` stands for addresses and blocks outside all pools.",
	}
	nodeBlocks   = nodeGroup.gauge("node_blocks", "blocks", "Blocks that the node owns; node=\"none\" counts blocks without an owner.", "node", "ippool").with(blocks.Pools, blocks.Blocks)
	nodeEmpty    = nodeGroup.gauge("node_empty_blocks", "blocks", "Blocks of the node that hold no allocation.", "node", "ippool").with(blocks.Pools, blocks.Blocks)
	nodeBorrowed = nodeGroup.gauge("node_borrowed_addresses", "addresses", "Addresses of other nodes' blocks that the node uses.", "node", "ippool").with(borrowReads...)
	nodeLent     = nodeGroup.gauge("node_lent_addresses", "addresses", "Addresses of the node's blocks that other nodes use.", "node", "ippool").with(borrowReads...)
	nodeInUse    = nodeGroup.gauge("node_in_use_addresses", "addresses",
		"Allocated addresses by the node that the allocation names (\"none\" if it names none) and by the block's owner: self (the same node), other (another node) or none (no node). "+
			"Series for other and none exist only if they are not 0.",
		"node", "ippool", "block_owner").unstable().with(blocks.Pools, blocks.Blocks)
	nodesWithout = nodeGroup.gauge("nodes_without_block", "nodes",
		"Schedulable nodes that own no block of the family in any pool. 0 for a family if no pod has an address of it.", "ip_family").
		with(blocks.Blocks, blocks.Nodes, blocks.Pods)
	nodesJoinable = nodeGroup.gauge("joinable_nodes", "nodes",
		"Nodes that may still join: --max-nodes less the nodes that exist. Absent without --max-nodes.").with(blocks.Nodes)
)

var (
	secondaryGroup = Group{
		Title: "Whereabouts", prefix: exporterPrefix,
		About: "The pools of secondary networks, if Whereabouts is installed. Its findings are under `whereabouts/…` in section Findings. " +
			"If a network divides its range among nodes, each node has a pool; `--node-metrics=false` turns these off, too.",
	}
	secondaryInUse = secondaryGroup.gauge("whereabouts_pool_in_use_addresses", "addresses", "Addresses that the pool records.", secondaryLabels...).
			with(blocks.WhereaboutsPools)
	secondaryCapacity = secondaryGroup.gauge("whereabouts_pool_capacity_addresses", "addresses",
		"Addresses of the pool that can be assigned, whether in use or not: the range without its first and last address and without the addresses that the network attachment excludes. "+
			"Absent for a range of more than 32 bits, which is practically unlimited.", secondaryLabels...).with(secondaryReads...)
	secondaryAvailable = secondaryGroup.gauge("whereabouts_pool_available_addresses", "addresses",
		"Addresses of the capacity that are not in use. Absent if the capacity is absent.", secondaryLabels...).with(secondaryReads...)
)

var (
	secondaryLabels = []string{"whereabouts_pool", "network", "ip_family"}
	secondaryReads  = []blocks.Resource{blocks.WhereaboutsPools, blocks.NetworkAttachments}
)

var (
	findingGroup = Group{
		Title: "Findings", prefix: exporterPrefix, stable: true,
		About: "`check` is the ID of a check in [CHECKS.md](../audit/CHECKS.md). `ippool` is the pool that a finding is about (of Whereabouts: namespace and name), or `none` if it is about no pool or about several. " +
			"A check that gave a verdict has a series with `ippool=\"none\"` for each severity, even if it is 0, and one for each pool with findings. " +
			"A check without a verdict has no series, and its `calico_audit_check_success` is 0. A check that skips single objects, which the report names, still gave a verdict. " +
			"The checks of host views (" + hostViewChecks() + ") have no series in this section, not even `calico_audit_check_success`, " +
			"unless the exporter has host views (`--agents`).",
	}
	findings          = findingGroup.gauge("findings", "findings", "Findings that are not muted.", "check", "severity", "ippool")
	findingsMuted     = findingGroup.gauge("findings_muted", "findings", "Findings that --ignore rules mute. No other metric counts them.")
	findingsUnsure    = findingGroup.gauge("findings_unconfirmed", "findings", "Error and critical findings that rest on the absence of an object and await a second reading. No other metric counts them.").unstable()
	checkSuccess      = findingGroup.gauge("check_success", "", "1 if the check gave a verdict; 0 if a read that it needs failed, or if the check itself failed.", "check")
	checkTook         = findingGroup.gauge("check_duration_seconds", "seconds", "Duration of the check in the last audit.", "check")
	datastoreIsLocked = findingGroup.gauge("datastore_locked", "", "1 if the datastore is locked, so that no pod can get an address, else 0.").unstable().with(blocks.ClusterInfos)
)

var (
	stateGroup = Group{
		Title: "The exporter", prefix: exporterPrefix, stable: true,
		About: "The exporter also serves the usual metrics of Go programs and processes (`go_`, `process_`). Besides alerts on the cluster's state, alert on the age of the data, " +
			"`time() - calico_audit_snapshot_timestamp_seconds`, and on `calico_audit_snapshot_complete == 0`.",
	}
	snapshotTime       = stateGroup.gauge("snapshot_timestamp_seconds", "seconds", "Unix time, by the API server's clock, of the state that these metrics describe. It does not advance while the API server cannot be reached.")
	snapshotComplete   = stateGroup.gauge("snapshot_complete", "", "1 if every read of the audit succeeded and is up to date, else 0.")
	snapshotGaps       = stateGroup.gauge("snapshot_gaps", "gaps", "Reads that failed or may be out of date. The report names each.").unstable()
	auditTook          = stateGroup.gauge("audit_duration_seconds", "seconds", "Duration of the last audit.").unstable()
	auditsTotal        = stateGroup.counter("audits_total", "audits", "Audits since the exporter started.")
	auditErrorsTotal   = stateGroup.counter("audit_errors_total", "errors", "Checks that failed because of a defect in the program, and second readings that failed.")
	secondReadingTotal = stateGroup.counter("second_readings_total", "readings", "Second readings made to confirm findings.").unstable()
	watchRestartsTotal = stateGroup.counter("watch_restarts_total", "restarts", "Watches that were restarted for a reason other than their regular timeout.", "resource")
	buildInfo          = stateGroup.gauge("build_info", "", "Build of the exporter. The value is always 1.", "version", "revision", "goversion")
)

var (
	viewGroup = Group{
		Title: "Host views", prefix: exporterPrefix, stable: true,
		About: "An exporter that asks the nodes' agents for host views (`--agents`) has these. The report names each node without a view, with the reason.",
	}
	viewsAsked  = viewGroup.counter("host_view_requests_total", "requests", "Requests to the nodes' agents.")
	viewsFailed = viewGroup.counter("host_view_errors_total", "requests", "Requests to the nodes' agents that returned no host view.")
	viewsFresh  = viewGroup.gauge("host_views", "nodes", "Nodes with a host view of the last 10 minutes.")
	viewsOldest = viewGroup.gauge("host_view_oldest_timestamp_seconds", "seconds", "Unix time, by its node's clock, at which the oldest of these views was taken. Absent if there is none.")
	viewsLack   = viewGroup.gauge("nodes_without_host_view", "nodes", "Ready Linux nodes without a host view of the last 10 minutes. Their routes and addresses are not known.")
)

// exporterGroups are the sections of METRICS.md that describe the exporter.
var exporterGroups = []*Group{&poolGroup, &nodeGroup, &secondaryGroup, &findingGroup, &stateGroup, &viewGroup}

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

var (
	agentGroup = Group{
		Title: "The agent", prefix: exporterPrefix + "agent_", stable: true,
		About: "`calico-audit agent` serves these for its node, and the usual metrics of Go programs and processes.",
	}
	agentBuild = agentGroup.gauge("build_info", "", "Build of the agent. The value is always 1.", "version", "revision", "goversion")
	agentScans = agentGroup.counter("scans_total", "scans", "Scans of the node's kernel since the agent started.")
	agentFails = agentGroup.counter("scan_errors_total", "scans", "Scans that failed. After a failed scan, the metrics of the view are absent.")
	agentTook  = agentGroup.gauge("scan_duration_seconds", "seconds", "Duration of the last scan.")

	agentTaken      = agentGroup.gauge("view_timestamp_seconds", "seconds", "Unix time, by the node's clock, at which the last scan began.")
	agentGaps       = agentGroup.gauge("gaps", "gaps", "Reads of the last scan that failed. The host view names them.")
	agentRoutes     = agentGroup.gauge("routes", "routes", "Routes in the routing tables in use, except the local table, by type and by the protocol that made them.", "type", "protocol")
	agentBlackholes = agentGroup.gauge("blackhole_routes", "routes", "Routes that drop the traffic that they match.", "ip_family")
	agentSpaces     = agentGroup.gauge("network_namespaces", "namespaces", "Network namespaces of the node, including the host's own.")
	agentAddresses  = agentGroup.gauge("namespace_addresses", "addresses", "Addresses in network namespaces other than the host's own.", "ip_family")
	agentStuck      = agentGroup.gauge("processes_uninterruptible", "processes",
		"Processes in uninterruptible sleep (state D) that hold a network namespace with addresses, other than the host's own. A moment in this state is normal; a process that stays in it holds its addresses and cannot be killed.")
)
