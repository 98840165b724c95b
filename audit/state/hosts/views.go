package hosts

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// A host view proves what one node's kernel did at one time. Whether that says
// anything about a fact of the datastore depends on which of the two is newer, and
// on how far their clocks may be apart.

// Views are the host views of a snapshot with their indexes.
type Views struct {
	// all are all views, also of machines that are no nodes: what any of them shows in
	// use counts. ofNode are those of nodes of the cluster, whose routes are evaluated: one
	// a node. byNode are all that call themselves a node's.
	all    []*View
	ofNode map[string]*View
	byNode map[string][]*View
	// uses are the addresses that views show, in order.
	uses []Use
	// gaps are the views that prove nothing, and those that could not be had; whyNone
	// is the reason of the first of each node.
	gaps    []blocks.HostGap
	whyNone map[string]string
	// read is when the cluster was read, and until when views were.
	read, until time.Time
	grace       time.Duration
}

// View is a host view with its indexes.
type View struct {
	*blocks.HostView
	// OfNode is true if the view is of a node of the cluster, as far as is known.
	OfNode bool
	// useless says why the view as a whole proves nothing; empty if it may.
	useless string
	read    time.Time
	routes  map[netip.Prefix][]*blocks.HostRoute
	lookups map[netip.Prefix][]*blocks.HostLookup
	// podDevs are the host's ends of the veth pairs of its namespaces.
	podDevs map[string]bool
	// older counts the facts that are newer than the view, and names the first.
	older     int
	olderFact string
}

// New indexes the host views of a snapshot. Grace is how long an allocation is left
// alone, and isNode says whether the cluster has a node of a name, as far as is known.
// After the last question by [Views.Proves], [Views.Close] ends the list of gaps.
func New(s *blocks.Snapshot, grace time.Duration, isNode func(string) bool) *Views {
	vs := &Views{
		gaps: slices.Clone(s.Hosts.Gaps), ofNode: make(map[string]*View, len(s.Hosts.Views)), byNode: make(map[string][]*View, len(s.Hosts.Views)),
		read: s.Cluster.TakenAt, until: s.Hosts.Until, grace: grace,
	}
	if vs.until.Before(vs.read) {
		vs.until = vs.read
	}
	for i := range s.Hosts.Views {
		v := vs.newView(&s.Hosts.Views[i], isNode)
		vs.all = append(vs.all, v)
		vs.byNode[v.Node] = append(vs.byNode[v.Node], v)
		switch first := vs.ofNode[v.Node]; {
		case !v.OfNode:
			vs.gap(v, fmt.Sprintf("node %q does not exist in the cluster: of this view only the addresses in use count, not the routes", v.Node))
		case first != nil:
			vs.gap(v, fmt.Sprintf("a second view of the node, besides %s: of this one only the addresses in use count, not the routes", first.Source))
		default:
			vs.ofNode[v.Node] = v
		}
	}
	if len(vs.all) > 0 {
		vs.indexUses(s)
	}
	return vs
}

func (vs *Views) gap(v *View, reason string) {
	vs.gaps = append(vs.gaps, blocks.HostGap{Node: v.Node, Source: v.Source, Reason: reason})
}

func (vs *Views) newView(h *blocks.HostView, isNode func(string) bool) *View {
	v := &View{
		HostView: h, OfNode: isNode(h.Node), useless: vs.useless(h), read: vs.read,
		routes: make(map[netip.Prefix][]*blocks.HostRoute, len(h.Routes)), lookups: make(map[netip.Prefix][]*blocks.HostLookup, len(h.Lookups)),
		podDevs: map[string]bool{},
	}
	for i := range h.Routes {
		r := &h.Routes[i]
		v.routes[r.Dst] = append(v.routes[r.Dst], r)
	}
	for i := range h.Namespaces {
		for _, dev := range h.Namespaces[i].HostInterfaces {
			v.podDevs[dev] = true
		}
	}
	for i := range h.Lookups {
		l := &h.Lookups[i]
		v.lookups[l.Dst] = append(v.lookups[l.Dst], l)
	}
	return v
}

// useless says why a view proves nothing at all, whatever the fact; empty if it
// may prove something.
func (vs *Views) useless(v *blocks.HostView) string {
	switch {
	case v.Doubt != "":
		return v.Doubt
	case vs.read.IsZero():
		return "it proves nothing, as it is not known when the cluster was read (--at says it)"
	case v.Expired(vs.read):
		return fmt.Sprintf("it was taken at %s, more than 10 minutes before the cluster was read (%s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(vs.read))
	case v.Future(vs.until):
		return fmt.Sprintf("it was taken at %s, which lies in the future (the cluster was read at %s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(vs.read))
	}
	return ""
}

// Proves reports whether a view proves something about a fact that has held since a
// time. The zero time stands for a fact whose age is not known: it may be as new
// as the reading of the cluster. A view that is older than the fact is noted as a
// gap that names the fact.
func (vs *Views) Proves(v *View, since time.Time, fact string) bool {
	if v.Stale() || v.NewerThan(since) {
		return !v.Stale()
	}
	if since.IsZero() {
		fact += ", whose age is not known"
	} else {
		fact += ", since " + phrase.Time(since)
	}
	if v.older++; v.older == 1 || fact < v.olderFact {
		v.olderFact = fact
	}
	return false
}

// Close ends the list of gaps: a view that was older than what it was asked about is
// one, too.
func (vs *Views) Close() {
	for _, v := range vs.all {
		switch {
		case v.Stale():
			vs.gap(v, v.useless)
		case v.older > 0:
			vs.gap(v, fmt.Sprintf("it was taken at %s, and proves nothing about %s newer, such as %s",
				phrase.Time(v.TakenAt), phrase.PluralVerb(v.older, "fact", "that is", "that are"), v.olderFact))
		}
	}
	slices.SortFunc(vs.gaps, blocks.CompareHostGaps)
	vs.whyNone = map[string]string{}
	for _, g := range vs.gaps {
		if _, known := vs.whyNone[g.Node]; !known {
			vs.whyNone[g.Node] = g.Reason
		}
	}
}

// Of returns the host view of a node of the cluster, or nil.
func (vs *Views) Of(node string) *View { return vs.ofNode[node] }

// OfNodes yields the host views of the cluster's nodes, in order.
func (vs *Views) OfNodes() iter.Seq[*View] {
	return func(yield func(*View) bool) {
		for _, v := range vs.all {
			if vs.ofNode[v.Node] == v && !yield(v) {
				return
			}
		}
	}
}

// Gaps returns the host views that could not be had, and those that prove nothing or
// not everything that they were asked.
func (vs *Views) Gaps() []blocks.HostGap { return vs.gaps }

// NewerThan reports whether a view proves something of a fact that has held since a time,
// give or take what clocks may be off. Zero is the time of the cluster's reading.
func (v *View) NewerThan(since time.Time) bool {
	if since.IsZero() {
		since = v.read
	}
	return !v.Stale() && !v.TakenBefore(since)
}

// TakenBefore reports whether a view was taken before a time, by more than clocks may be
// off.
func (v *View) TakenBefore(t time.Time) bool { return v.TakenAt.Add(blocks.ClockSkew).Before(t) }

// Stale is true if the view is too old, or lies in the future, and so proves nothing;
// it may still be right.
func (v *View) Stale() bool { return v.useless != "" }

// Text says which view it is.
func (v *View) Text() string {
	return fmt.Sprintf("%s, taken at %s", v.Source, phrase.Time(v.TakenAt))
}
