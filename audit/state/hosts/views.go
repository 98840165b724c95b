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

// A host view shows one node's kernel at one time. Whether it proves a fact in the datastore
// depends on which of the two is newer, and on the skew of their clocks.

// Views holds the host views of a snapshot with indexes.
type Views struct {
	// all holds all views, including those of machines that are not nodes: their addresses
	// in use count. ofNode holds one view for each node of the cluster; only its routes are
	// evaluated. byNode holds all views by node name.
	all    []*View
	ofNode map[string]*View
	byNode map[string][]*View
	// uses holds the addresses that views show, sorted.
	uses []Use
	// gaps are views that prove nothing or could not be read. whyNone is the first such
	// reason for each node.
	gaps    []blocks.HostGap
	whyNone map[string]string
	// read is when the cluster was read; until is when the last view was read.
	read, until time.Time
	grace       time.Duration
}

// View is a host view with its indexes.
type View struct {
	*blocks.HostView
	// OfNode is true if the view's node exists, or may exist.
	OfNode bool
	// useless explains why the whole view proves nothing; empty if it may prove something.
	useless string
	read    time.Time
	routes  map[netip.Prefix][]*blocks.HostRoute
	lookups map[netip.Prefix][]*blocks.HostLookup
	// podDevs are the host ends of the namespaces' veth pairs.
	podDevs map[string]bool
	// older counts the facts that are too new for the view; olderFact names one of them.
	older     int
	olderFact string
}

// New indexes the host views of a snapshot. Grace is the minimum age of an allocation
// before it is evaluated. isNode reports whether the cluster has, or may have, a node with
// a name. After the last call of [Views.Proves], call [Views.Close] to complete the list of
// gaps.
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
			vs.gap(v, fmt.Sprintf("node %q does not exist in the cluster: only the view's addresses in use count, not its routes", v.Node))
		case first != nil:
			vs.gap(v, fmt.Sprintf("a second view of the node, besides %s: only the addresses in use of this one count, not its routes", first.Source))
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

// useless explains why a view proves nothing at all; empty if it may prove something.
func (vs *Views) useless(v *blocks.HostView) string {
	switch {
	case v.Doubt != "":
		return v.Doubt
	case vs.read.IsZero():
		return "it proves nothing, as it is not known when the cluster was read (give the time with --at)"
	case v.Expired(vs.read):
		return fmt.Sprintf("it was taken at %s, more than 10 minutes before the cluster was read (%s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(vs.read))
	case v.Future(vs.until):
		return fmt.Sprintf("it was taken at %s, in the future (the cluster was read at %s), and proves nothing", phrase.Time(v.TakenAt), phrase.Time(vs.read))
	}
	return ""
}

// Proves reports whether a view proves anything about a fact that has held since a time.
// The zero time means that the age is unknown: the fact may be as new as the reading of the
// cluster. If the view is older than the fact, Proves records a gap that names the fact.
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

// Close completes the list of gaps with the views that were older than a fact.
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

// Of returns the host view of a node of the cluster; nil if there is none.
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

// Gaps returns the host views that could not be read or prove less than was needed.
func (vs *Views) Gaps() []blocks.HostGap { return vs.gaps }

// NewerThan reports whether a view proves anything about a fact that has held since a time,
// allowing for clock skew. Zero means the time of the cluster's reading.
func (v *View) NewerThan(since time.Time) bool {
	if since.IsZero() {
		since = v.read
	}
	return !v.Stale() && !v.TakenBefore(since)
}

// TakenBefore reports whether a view is older than a time by more than the clock skew.
func (v *View) TakenBefore(t time.Time) bool { return v.TakenAt.Add(blocks.ClockSkew).Before(t) }

// Stale reports whether the view proves nothing because it is too old, in the future or
// otherwise in doubt. Its content may still be right.
func (v *View) Stale() bool { return v.useless != "" }

// Text identifies the view.
func (v *View) Text() string {
	return fmt.Sprintf("%s, taken at %s", v.Source, phrase.Time(v.TakenAt))
}
