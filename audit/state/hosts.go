package state

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// A host view proves what one node's kernel did at one time. Whether that says
// anything about a fact of the datastore depends on which of the two is newer, and
// on how far their clocks may be apart.

const (
	// clockSkew is how far a node's clock may be off.
	clockSkew = time.Minute
	// viewLife is how old a view may be, counted from the audit's time.
	viewLife = 10 * time.Minute
)

// hostViews are the host views of a State with what follows from them.
type hostViews struct {
	// views are those of nodes of the cluster, whose routes are judged: one a node.
	// all are all views, also of machines that are no nodes: what any of them shows in
	// use counts.
	views map[string]*NodeView
	all   []*NodeView
	// uses are the addresses that views show, in order.
	uses []HostUse
	// fates are the answers of the owners' kernels for borrowed addresses, as far
	// as a view proves one.
	fates map[*Borrow]HostRoute
	// foreign are the routes that drop traffic to blocks of other owners.
	foreign []*ForeignBlackhole
	// freeUses are addresses in use that the datastore calls free.
	freeUses []FreeUse
	// seconds are the namespaces that have an address besides its live owners.
	seconds map[netip.Addr][]HostUse
	// gaps are the views that prove nothing, and those that could not be had.
	gaps []blocks.HostGap
}

// NodeView is a host view with its indexes.
type NodeView struct {
	*blocks.HostView
	// node is true if the view is of a node of the cluster, as far as is known.
	node bool
	// useless says why the view as a whole proves nothing; empty if it may.
	useless string
	routes  map[netip.Prefix][]*blocks.HostRoute
	lookups map[netip.Prefix][]*blocks.HostLookup
	// podDevs are the host's ends of the veth pairs of its namespaces.
	podDevs map[string]bool
	// older counts the facts that are newer than the view, and names the first.
	older     int
	olderFact string
}

// evaluateViews indexes the host views and joins them with what IPAM holds.
func (st *State) evaluateViews() {
	k := &st.views
	k.gaps = slices.Clone(st.Snapshot.Hosts.Gaps)
	k.views = make(map[string]*NodeView, len(st.Snapshot.Hosts.Views))
	for i := range st.Snapshot.Hosts.Views {
		v := st.newNodeView(&st.Snapshot.Hosts.Views[i])
		k.all = append(k.all, v)
		switch {
		case !v.node:
			k.gaps = append(k.gaps, blocks.HostGap{Node: v.Node, Source: v.Source, Reason: fmt.Sprintf(
				"node %q does not exist in the cluster: of this view only the addresses in use count, not the routes", v.Node)})
		case k.views[v.Node] != nil:
			k.gaps = append(k.gaps, blocks.HostGap{Node: v.Node, Source: v.Source, Reason: fmt.Sprintf(
				"a second view of the node, besides %s: of this one only the addresses in use count, not the routes", k.views[v.Node].Source)})
		default:
			k.views[v.Node] = v
		}
	}
	if len(k.all) == 0 {
		return
	}
	st.indexHostUses()
	st.evaluateBorrowRoutes()
	st.findForeignBlackholes()
	st.findFreeUses()
	st.findSecondOwners()
	st.countOldLeaks()
	for _, v := range k.all {
		switch {
		case v.useless != "":
			k.gaps = append(k.gaps, blocks.HostGap{Node: v.Node, Source: v.Source, Reason: v.useless})
		case v.older > 0:
			k.gaps = append(k.gaps, blocks.HostGap{Node: v.Node, Source: v.Source, Reason: fmt.Sprintf(
				"it was taken at %s, and proves nothing about %s newer, such as %s", phrase.Time(v.TakenAt), newerFacts(v.older), v.olderFact)})
		}
	}
	slices.SortFunc(k.gaps, blocks.CompareHostGaps)
}

func (st *State) newNodeView(v *blocks.HostView) *NodeView {
	k := &NodeView{
		HostView: v, node: st.MayBeNode(v.Node), useless: st.useless(v),
		routes: make(map[netip.Prefix][]*blocks.HostRoute, len(v.Routes)), lookups: make(map[netip.Prefix][]*blocks.HostLookup, len(v.Lookups)),
	}
	for i := range v.Routes {
		r := &v.Routes[i]
		k.routes[r.Dst] = append(k.routes[r.Dst], r)
	}
	k.podDevs = map[string]bool{}
	for i := range v.Namespaces {
		for _, dev := range v.Namespaces[i].HostInterfaces {
			k.podDevs[dev] = true
		}
	}
	for i := range v.Lookups {
		l := &v.Lookups[i]
		k.lookups[l.Dst] = append(k.lookups[l.Dst], l)
	}
	return k
}

// MayBeNode reports whether the cluster has a node of a name, as far as is known.
func (st *State) MayBeNode(name string) bool { return !st.NodesRead() || !st.Vanished(name) }

// useless says why a view proves nothing at all, whatever the fact; empty if it
// may prove something.
func (st *State) useless(v *blocks.HostView) string {
	now := st.Cluster.TakenAt
	until := st.Snapshot.Hosts.Until
	if until.Before(now) {
		until = now
	}
	switch {
	case v.Doubt != "":
		return v.Doubt
	case now.IsZero():
		return "it proves nothing, as it is not known when the cluster was read (--at says it)"
	case v.TakenAt.Before(now.Add(-viewLife)):
		return fmt.Sprintf("it was taken at %s, more than 10 minutes before the cluster was read (%s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(now))
	case v.TakenAt.After(until.Add(clockSkew)):
		return fmt.Sprintf("it was taken at %s, which lies in the future (the cluster was read at %s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(now))
	}
	return ""
}

// proves reports whether a view proves something about a fact that has held since a
// time. The zero time stands for a fact whose age is not known: it may be as new
// as the reading of the cluster. A view that is older than the fact is noted as a
// gap that names the fact.
func (st *State) proves(k *NodeView, since time.Time, fact string) bool {
	if k.useless != "" {
		return false
	}
	if st.newEnough(k, since) {
		return true
	}
	if since.IsZero() {
		fact += ", whose age is not known"
	} else {
		fact += ", since " + phrase.Time(since)
	}
	if k.older++; k.older == 1 || fact < k.olderFact {
		k.olderFact = fact
	}
	return false
}

// newEnough reports whether a view is newer than a fact, give or take what clocks
// may be off.
func (st *State) newEnough(k *NodeView, since time.Time) bool {
	if since.IsZero() {
		since = st.Cluster.TakenAt
	}
	return k.useless == "" && !k.TakenAt.Add(clockSkew).Before(since)
}

// newerFacts counts facts: "1 fact that is", "2 facts that are".
func newerFacts(n int) string {
	if n == 1 {
		return "1 fact that is"
	}
	return phrase.Plural(n, "fact") + " that are"
}

// NodeView returns the host view of a node of the cluster, or nil.
func (st *State) NodeView(node string) *NodeView { return st.views.views[node] }

// HostGaps returns the host views that could not be had, and those that prove
// nothing or not everything that they were asked.
func (st *State) HostGaps() []blocks.HostGap { return st.views.gaps }

// Stale is true if the view is too old, or lies in the future, and so proves nothing;
// it may still be right.
func (k *NodeView) Stale() bool { return k.useless != "" }

// Text says which view it is.
func (k *NodeView) Text() string {
	return fmt.Sprintf("%s, taken at %s", k.Source, phrase.Time(k.TakenAt))
}
