package blocks

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// APIVersion is the version of all documents of calico-audit. HostViewKind is the kind of a
// host view.
const (
	APIVersion   = "calico-audit/v1alpha1"
	HostViewKind = "HostView"
)

// HostView is one reading of a node's kernel: its routes, the kernel's answers to route
// lookups, and the addresses in its network namespaces. "calico-audit agent --once -o json"
// prints it.
//
// A view proves the presence of its routes and addresses. The absence of a route proves
// nothing, because views may be partial. The absence of an address proves something only if
// the namespaces are complete: see [HostView.NamespacesComplete].
type HostView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Node is the name of the Kubernetes node.
	Node string `json:"node"`
	// BootID identifies the machine's current boot (/proc/sys/kernel/random/boot_id); empty
	// in views of older agents and in route listings. Of several views with the same boot
	// ID, only the newest is current, whichever node they name.
	BootID string `json:"bootID,omitempty"`
	// TakenAt is the node's time when the reading started.
	TakenAt time.Time `json:"takenAt"`
	// Routes are the routes of all tables that routing rules use, without the local table.
	Routes []HostRoute `json:"routes"`
	// Lookups are the kernel's answers for the addresses within the node's blackhole
	// routes. The most specific lookup that contains an address applies. Empty in route
	// listings.
	Lookups []HostLookup `json:"lookups,omitempty"`
	// Namespaces are the machine's network namespaces, including its own.
	Namespaces []HostNamespace `json:"namespaces"`
	// Gaps describes the agent's failed reads.
	Gaps []string `json:"gaps,omitempty"`
	// NamespacesComplete is true if Namespaces covers all addresses of the machine. The agent must
	// have found, and read the addresses of, every network namespace that a process, a thread, a
	// mount or an open file holds, or that a veth pair of the node leads into.
	//
	// An agent sets it if none of its gaps concerns namespaces. Readers also set it for
	// views without gaps. They clear it if the view has no namespaces (not even the
	// machine's own), if a namespace could not be parsed, or if addresses that the node has
	// in the cluster are missing from the view. Package affinity/host documents the
	// namespaces that remain invisible.
	NamespacesComplete bool `json:"namespacesComplete,omitempty"`

	// NamespacesGap explains why the namespaces are not complete. It is empty if they are,
	// or if the reason is unknown.
	NamespacesGap string `json:"-"`
	// Machine identifies a running machine: its boot ID and the inode of its own network namespace,
	// because machines in containers share the kernel's boot ID. It is empty if BootID is empty.
	Machine string `json:"-"`
	// Doubt explains why the whole view proves nothing, apart from its age. Addresses that
	// it shows may still be in use.
	Doubt string `json:"-"`
	// Source is the view's file or pod.
	Source string `json:"-"`
	// Authenticated is true if the view certainly comes from the node's agent, such as a
	// file that the operator names. An unauthenticated view may block a step, but never
	// allow one.
	Authenticated bool `json:"-"`
	// Earlier is true for a view from a previous reading: its source could not be read
	// again, or returned no newer view. It confirms nothing.
	Earlier bool `json:"-"`
	// RulesKnown is true for views of an agent, which omits tables without a routing rule.
	// A plain route listing does not show which tables are used, or in which order.
	RulesKnown bool `json:"-"`
	// RoutesPartial is true if some routes could not be parsed; any of them may override
	// the others. LookupsPartial is the same for lookups.
	RoutesPartial, LookupsPartial bool `json:"-"`
}

// TellingRoutes returns the routes that can affect verdicts for a node with the given
// blocks. It omits unicast routes that overlap neither one of these blocks nor a route of
// another type: in a large cluster, a node has a route to each block.
func (v *HostView) TellingRoutes(own []netip.Prefix) []HostRoute {
	var touching netipx.IPSetBuilder
	for i := range v.Routes {
		if r := &v.Routes[i]; r.Type != RouteUnicast && r.Dst.Bits() > 0 {
			touching.AddPrefix(r.Dst)
		}
	}
	for _, p := range own {
		touching.AddPrefix(p)
	}
	set, _ := touching.IPSet() // all prefixes are valid
	out := []HostRoute{}
	for _, r := range v.Routes {
		if set.OverlapsPrefix(r.Dst) {
			out = append(out, r)
		}
	}
	return slices.Clip(out)
}

// Kinds of routes and of lookup results, as named by the ip command.
const (
	RouteUnicast     = "unicast"
	RouteBlackhole   = "blackhole"
	RouteUnreachable = "unreachable"
	RouteProhibit    = "prohibit"
	RouteThrow       = "throw"
	RouteLocal       = "local"
	// RouteNone is the result of a lookup without a matching route.
	RouteNone = "none"
)

// HostRoute is one route of a node's kernel.
type HostRoute struct {
	// Dst is the destination; 0.0.0.0/0 and ::/0 are the default routes.
	Dst netip.Prefix `json:"dst"`
	// Type is the kind of route, such as [RouteBlackhole].
	Type string `json:"type"`
	// Protocol is the route's origin: "bird" (12), "80" (Felix), "kernel", …
	Protocol string `json:"protocol,omitempty"`
	// Table is "main", or the name or number of another routing table.
	Table string `json:"table"`
	// Metric is the route's priority; among equal destinations, the lowest wins.
	Metric int `json:"metric"`
	// Gateway and Dev are the route's next hop; the first of several.
	Gateway string `json:"gateway,omitempty"`
	Dev     string `json:"dev,omitempty"`
}

// HostLookup is the kernel's route for the addresses of Dst, except those in a more specific
// lookup.
type HostLookup struct {
	Dst netip.Prefix `json:"dst"`
	// Result is a kind such as [RouteBlackhole], [RouteUnicast] or [RouteNone].
	Result string `json:"result"`
	// Match is the destination of the matching route, if known. The kernel does not report
	// it when it refuses; Match is then the only listed route that can be the cause.
	Match   netip.Prefix `json:"match,omitzero"`
	Gateway string       `json:"gateway,omitempty"`
	Dev     string       `json:"dev,omitempty"`
	Table   string       `json:"table,omitempty"`
}

// HostNamespace is one network namespace of a node.
type HostNamespace struct {
	// ID is the namespace's inode number.
	ID string `json:"id"`
	// Name is its file under /run/netns, such as "cni-…"; empty if only processes hold it.
	Name string `json:"name,omitempty"`
	// Host is true for the node's own network namespace.
	Host bool `json:"host,omitempty"`
	// Addresses are the configured addresses, without loopback and link-local ones.
	Addresses []netip.Prefix `json:"addresses"`
	// HostInterfaces are the host's ends of its veth pairs, such as "cali…". Nil means
	// unknown. Empty but not nil means that it has no veth pair to the host, like
	// namespaces of clusters inside pods.
	HostInterfaces []string `json:"hostInterfaces"`
	// Sandbox is the container ID of its pod sandbox and PodUID the pod's UID, if its
	// processes reveal them.
	Sandbox string `json:"sandbox,omitempty"`
	PodUID  string `json:"podUID,omitempty"`
	// Pids are processes in it, those in state D first. Commands and States hold their
	// names and states ("R", "S", "D" for uninterruptible sleep, "Z", …) in the same order.
	// Long lists are cut; Processes is the full number.
	Pids      []int    `json:"pids"`
	Commands  []string `json:"commands,omitempty"`
	States    []string `json:"states"`
	Processes int      `json:"processes"`
}

// HostReading holds all knowledge about the nodes' kernels.
type HostReading struct {
	// Asked is true if host views were requested at all.
	Asked bool
	// Until is when reading ended, by the clock used for ages. Views after it lie in the
	// future.
	Until time.Time
	// Views are the readable views, the newest of each machine, including machines that are
	// not nodes of the cluster. A node may have several views that do not replace each
	// other; its first is the best source of its routes.
	Views []HostView
	// Gaps are the views that are missing or prove nothing.
	Gaps []HostGap
}

// A HostGap is a node's view that is missing or proves nothing. It does not make a report
// incomplete: verdicts then use only the datastore.
type HostGap struct {
	// Node is the affected node; empty if unknown.
	Node string `json:"node,omitempty"`
	// Source is the file or pod that was read.
	Source string `json:"source,omitempty"`
	// Reason describes the problem in one sentence.
	Reason string `json:"reason"`
}

// String returns the gap as one line.
func (g HostGap) String() string {
	switch {
	case g.Node != "" && g.Source != "":
		return g.Node + " (" + g.Source + "): " + g.Reason
	case g.Node+g.Source != "":
		return g.Node + g.Source + ": " + g.Reason
	}
	return g.Reason
}

// CompareHostGaps orders gaps by node, source and reason.
func CompareHostGaps(a, b HostGap) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
}

// sort puts views and gaps in canonical order.
func (r *HostReading) sort() {
	slices.SortStableFunc(r.Views, func(a, b HostView) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortStableFunc(r.Gaps, CompareHostGaps)
}
