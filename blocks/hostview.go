package blocks

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// APIVersion is that of every document that calico-audit writes, and HostViewKind the kind
// of a host view.
const (
	APIVersion   = "calico-audit/v1alpha1"
	HostViewKind = "HostView"
)

// HostView is what one node's kernel said at one time: its routes, its own
// answers to route lookups, and the addresses in use in its network namespaces.
// It is what "calico-audit agent --once -o json" prints.
//
// A view proves what it shows. That it does not show a route proves nothing, because
// views may be partial. That it does not show an address proves something only if its
// namespaces are complete: see [HostView.NamespacesComplete].
type HostView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Node is the name of the Kubernetes node.
	Node string `json:"node"`
	// BootID identifies the machine's current boot (/proc/sys/kernel/random/boot_id);
	// empty in views of older agents and in listings of routes. Of several views with
	// one boot ID, whatever node they name, only the newest says what is.
	BootID string `json:"bootID,omitempty"`
	// TakenAt is when the reading of the kernel began, by the node's clock.
	TakenAt time.Time `json:"takenAt"`
	// Routes are the routes of all tables that routing rules reach, less those of
	// the local table.
	Routes []HostRoute `json:"routes"`
	// Lookups are the kernel's answers for the addresses within the node's
	// blackhole routes. The most specific lookup that contains an address is its
	// answer. Empty in views made of route listings.
	Lookups []HostLookup `json:"lookups,omitempty"`
	// Namespaces are the machine's network namespaces; its own is among them.
	Namespaces []HostNamespace `json:"namespaces"`
	// Gaps says what the agent could not read.
	Gaps []string `json:"gaps,omitempty"`
	// NamespacesComplete is true if Namespaces are all that hold addresses on the
	// machine: every network namespace that a process, a thread,
	// a mount or an open file holds or that one of the node's veth pairs leads into was
	// found, and the addresses of each were read. An agent writes it if no gap of its
	// own concerns namespaces. Readers set it for views without any gap, too, and clear
	// it where there are no namespaces, not even the machine's own, where one could not
	// be understood, and where the view does not show the addresses that its node has
	// in the cluster. What remains unseen even so is said in package affinity/host.
	NamespacesComplete bool `json:"namespacesComplete,omitempty"`

	// NamespacesGap says why the namespaces are not complete; empty if they are, or if
	// nothing more is known than that.
	NamespacesGap string `json:"-"`
	// Machine is the same for two views of one running machine: its boot ID together
	// with the number of its own network namespace, since machines that are containers
	// share their kernel's boot ID. Empty where the boot ID is.
	Machine string `json:"-"`
	// Doubt says why the view as a whole proves nothing, besides its age. What it shows
	// in use may be so all the same.
	Doubt string `json:"-"`
	// Source is the file or the pod that the view comes from.
	Source string `json:"-"`
	// Authenticated is true if it is certain that the node's agent said it: a file
	// that the operator names. A view that came over a connection that proves nothing
	// about its other end may refuse a step, and never allows one.
	Authenticated bool `json:"-"`
	// Earlier is true for a view of a reading before the last: its source could not be
	// read again, or gave none that was taken later. It confirms nothing.
	Earlier bool `json:"-"`
	// RulesKnown is true for views of an agent, which leave out the tables that no
	// routing rule reaches. A plain listing of routes does not tell which tables
	// are asked, nor in which order.
	RulesKnown bool `json:"-"`
	// RoutesPartial is true if routes could not be understood and were left out:
	// what the other routes say of an address, one of those may say otherwise.
	// LookupsPartial is the same of the lookups.
	RoutesPartial, LookupsPartial bool `json:"-"`
}

// TellingRoutes returns the routes that verdicts go by, for a node with blocks of its own:
// not those that lead somewhere and touch neither a route that drops traffic nor one of
// these blocks. In a large cluster a node has a route to each block.
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

// Kinds of route and of lookup answers, by the names that the ip command gives
// them.
const (
	RouteUnicast     = "unicast"
	RouteBlackhole   = "blackhole"
	RouteUnreachable = "unreachable"
	RouteProhibit    = "prohibit"
	RouteThrow       = "throw"
	RouteLocal       = "local"
	// RouteNone is a lookup's answer where no route matches.
	RouteNone = "none"
)

// HostRoute is one route of a node's kernel.
type HostRoute struct {
	// Dst is the destination; 0.0.0.0/0 and ::/0 are the default routes.
	Dst netip.Prefix `json:"dst"`
	// Type is the kind of route, such as [RouteBlackhole].
	Type string `json:"type"`
	// Protocol says who made the route: "bird" (12), "80" (Felix), "kernel", …
	Protocol string `json:"protocol,omitempty"`
	// Table is "main", or the name or number of another routing table.
	Table string `json:"table"`
	// Metric is the route's priority; lower wins among equal destinations.
	Metric int `json:"metric"`
	// Gateway and Dev say where the route leads; of a route with several next hops
	// the first.
	Gateway string `json:"gateway,omitempty"`
	Dev     string `json:"dev,omitempty"`
}

// HostLookup is the kernel's answer to "where does a packet to this address go",
// the same for every address of Dst that no more specific lookup contains.
type HostLookup struct {
	Dst netip.Prefix `json:"dst"`
	// Result is a kind such as [RouteBlackhole], [RouteUnicast] or [RouteNone].
	Result string `json:"result"`
	// Match is the destination of the route that matched, where the kernel told. It
	// does not where it refuses: then it is the one listed route that can be why.
	Match   netip.Prefix `json:"match,omitzero"`
	Gateway string       `json:"gateway,omitempty"`
	Dev     string       `json:"dev,omitempty"`
	Table   string       `json:"table,omitempty"`
}

// HostNamespace is one network namespace of a node.
type HostNamespace struct {
	// ID is the namespace's inode number.
	ID string `json:"id"`
	// Name is its file under /run/netns, such as "cni-…"; empty for a namespace
	// that only processes hold.
	Name string `json:"name,omitempty"`
	// Host is true for the node's own network namespace.
	Host bool `json:"host,omitempty"`
	// Addresses are those configured in it, loopback and link-local ones left out.
	Addresses []netip.Prefix `json:"addresses"`
	// HostInterfaces are the host's ends of its veth pairs, such as "cali…". Nil
	// means not known; empty and not nil that nothing joins it to the host, as the
	// namespaces of clusters that run within pods.
	HostInterfaces []string `json:"hostInterfaces"`
	// Sandbox is the container ID of the pod sandbox that it belongs to, as far as
	// its processes tell; PodUID the pod's UID.
	Sandbox string `json:"sandbox,omitempty"`
	PodUID  string `json:"podUID,omitempty"`
	// Pids are processes in it, Commands and States their names and states ("R",
	// "S", "D" for uninterruptible sleep, "Z", …), in the same order; those in
	// state D first. Long lists are cut: Processes is how many there are.
	Pids      []int    `json:"pids"`
	Commands  []string `json:"commands,omitempty"`
	States    []string `json:"states"`
	Processes int      `json:"processes"`
}

// HostReading is what is known of the nodes' kernels.
type HostReading struct {
	// Asked is true if host views were asked for at all.
	Asked bool
	// Until is the time after which a view lies in the future: when reading
	// ended, by the clock that ages are counted from.
	Until time.Time
	// Views are the views that could be read, of machines that are nodes of the cluster
	// or not, the newest of each machine. Of a node there may be several, which do not
	// stand for one another; the first of them is the one to ask for its routes.
	Views []HostView
	// Gaps are the views that could not be had, or that prove nothing.
	Gaps []HostGap
}

// A HostGap is a view of a node that is missing or proves nothing. It never makes
// a report incomplete: verdicts then rest on the datastore alone.
type HostGap struct {
	// Node is the node concerned; empty where that is not known.
	Node string `json:"node,omitempty"`
	// Source is the file or pod that was read.
	Source string `json:"source,omitempty"`
	// Reason says in one sentence what is wrong.
	Reason string `json:"reason"`
}

// String says the gap in one line.
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

// sort puts views and gaps into their canonical order.
func (r *HostReading) sort() {
	slices.SortStableFunc(r.Views, func(a, b HostView) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortStableFunc(r.Gaps, CompareHostGaps)
}
