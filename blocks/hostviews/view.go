package hostviews

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

const (
	// maxViewEntries limits the routes, lookups and namespaces of a view, each.
	maxViewEntries = 200_000
	// maxViewGaps limits the gaps reported per view.
	maxViewGaps = 5
	// maxViewProcesses limits the processes kept per namespace.
	maxViewProcesses = 8
)

// viewReader collects host views for a snapshot.
type viewReader struct {
	snapshot *blocks.Snapshot
	opts     Options
	// nodes maps the cluster's nodes to their BGP addresses; nil if nodes were not read
	// completely.
	nodes map[string][]netip.Prefix
	// concerned are the addresses of pools and blocks. Other routes do not affect verdicts.
	concerned *netipx.IPSet
	// owned maps nodes to their blocks.
	owned   map[string][]netip.Prefix
	strings *decode.SharedStrings

	views []blocks.HostView
	gaps  []blocks.HostGap
}

func newViewReader(s *blocks.Snapshot, opts Options) *viewReader {
	g := &viewReader{snapshot: s, opts: opts, owned: map[string][]netip.Prefix{}, strings: &decode.SharedStrings{}}
	if opts.Until.IsZero() {
		g.opts.Until = s.Cluster.TakenAt
	}
	if _, missing := s.Missing(blocks.Nodes); !missing {
		g.nodes = make(map[string][]netip.Prefix, len(s.Nodes))
		for i := range s.Nodes {
			g.nodes[s.Nodes[i].Name] = s.Nodes[i].Addresses
		}
		for _, unread := range s.Unreadable(blocks.Nodes) {
			g.nodes[unread.Name] = nil
		}
	}
	var all netipx.IPSetBuilder
	for i := range s.Pools {
		all.AddPrefix(s.Pools[i].CIDR)
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		all.AddPrefix(b.CIDR)
		if node := b.Owner.Node(); node != "" {
			g.owned[node] = append(g.owned[node], b.CIDR)
		}
	}
	g.concerned, _ = all.IPSet() // prefixes are valid: readers turn invalid ones into gaps
	return g
}

// gap records a missing view, or a missing part of one.
func (g *viewReader) gap(node, source, reason string) {
	g.gaps = append(g.gaps, blocks.HostGap{Node: node, Source: source, Reason: reason})
}

// viewDraft is a view under construction.
type viewDraft struct {
	*viewReader
	view blocks.HostView
	// taken is takenAt as written. refused explains why the whole view is rejected.
	taken, refused string
	// problems are the first omitted parts, and forgotten counts the others.
	problems  []string
	forgotten int
	// listing is true for a route listing of the ip command.
	listing bool
	spaces  spacesDraft
}

// problem records an omitted part of the view.
func (d *viewDraft) problem(field, reason string) {
	if d.spaces.lacking == "" && strings.HasPrefix(field, "namespaces") {
		d.spaces.lacking = field + " " + reason
	}
	if len(d.problems) == maxViewGaps {
		d.forgotten++
		return
	}
	d.problems = append(d.problems, field+" "+reason+": it was left out")
}

// entries reads a list. of returns the members of an entry, and a function that keeps the
// entry. A malformed value omits the whole entry.
func (d *viewDraft) entries(r *parse.Reader, list, what string, partial *bool, of func(r *parse.Reader, bad func(field, reason string)) (parse.Members, func())) {
	if r.Null() {
		return
	}
	if r.Peek() != '[' {
		*partial = true
		d.problem(list, "is not a list")
		return
	}
	r.Array(func(i int) {
		if d.refused != "" {
			return
		}
		bad := func(field, reason string) {
			*partial = true
			d.problem(list+"["+strconv.Itoa(i)+"]"+field, reason)
		}
		before := len(r.Faults)
		known, keep := of(r, bad)
		object := r.Fields(known)
		faults := slices.Clone(r.Faults[before:])
		r.Faults = r.Faults[:before]
		switch {
		case !object:
			bad("", "is not an object")
		case len(faults) > 0 && what != "":
			bad("", "is not "+what+": "+faults[0].Reason)
		case len(faults) > 0:
			*partial = true
			d.problem(faults[0].Field, faults[0].Reason)
		default:
			keep()
		}
	})
}

func (g *viewReader) reader(text []byte) *parse.Reader {
	r := parse.New(text)
	r.Share = g.strings.Bytes
	return r
}

// listing reads a route listing.
func (g *viewReader) listing(path string, text []byte) {
	node := nodeOfFile(path)
	d := &viewDraft{viewReader: g, view: blocks.HostView{Node: node, Source: path}, listing: true}
	switch at := g.opts.At; {
	case !at.IsZero():
		d.view.TakenAt = at
	case g.snapshot.Cluster.Live:
		g.gap(node, path, "a listing of routes carries no time: --host-views-at must say when it was taken")
		return
	default:
		d.view.TakenAt = g.snapshot.Cluster.TakenAt
	}
	d.routes(d.reader(text))
	d.finish("")
}

// object reads a host view from syntactically valid JSON.
func (g *viewReader) object(source string, text []byte) {
	d := &viewDraft{viewReader: g}
	d.view.Source, d.view.RulesKnown, d.view.Authenticated = source, true, true
	d.decode(d.reader(text))
	d.finish(nodeOfFile(source))
}

// agentView reads the view that a node's agent sent.
func (g *viewReader) agentView(source, node string, text []byte, authenticated bool) {
	if err := parse.CheckSyntax(text, 1, 1); err != nil {
		g.gap(node, source, "the agent's answer is not JSON: "+err.Error())
		return
	}
	d := &viewDraft{viewReader: g}
	d.view.Source, d.view.RulesKnown, d.view.Authenticated = source, true, authenticated
	d.decode(d.reader(text))
	if d.view.Node != node {
		d.view.Doubt = fmt.Sprintf("the agent reports node %q, but its pod is on %q, so the view proves nothing", parse.Clip(d.view.Node), node)
	}
	d.view.Node = node
	d.finish("")
}

func (d *viewDraft) decode(r *parse.Reader) {
	if r.Peek() != '{' {
		d.refused = "it is not a HostView, but " + parse.Clip(r.Text)
		return
	}
	var kind, version string
	r.Fields(parse.Members{
		"apiVersion": &version, "kind": &kind, "node": &d.view.Node, "takenAt": &d.taken, "bootID": &d.view.BootID,
		"routes": func() { d.routes(r) }, "lookups": func() { d.lookups(r) }, "namespaces": func() { d.namespaces(r) }, "gaps": func() { d.gaps(r) },
		"namespacesComplete": func() {
			d.spaces.said = true
			d.spaces.complete, _ = r.Boolean()
		},
	})
	at, err := time.Parse(time.RFC3339, d.taken)
	switch {
	case d.refused != "":
	case kind != blocks.HostViewKind || version != blocks.APIVersion:
		d.refused = fmt.Sprintf("it is of kind %q and apiVersion %q, not a %s of %s", parse.Clip(kind), parse.Clip(version), blocks.HostViewKind, blocks.APIVersion)
	case d.view.Node == "":
		d.refused = "node is missing"
	case d.taken == "":
		d.refused = "takenAt is missing, so its age is unknown"
	case err != nil:
		d.refused = "takenAt: " + parse.NotA("time such as 2026-01-31T08:00:00Z", d.taken)
	default:
		d.view.TakenAt = at.UTC()
	}
}

// gaps reads the agent's gaps. If a gap is malformed, the namespaces count as incomplete.
func (d *viewDraft) gaps(r *parse.Reader) {
	if r.Null() {
		return
	}
	if r.Peek() != '[' {
		d.spaces.lacking = "gaps is not a list"
		return
	}
	r.Array(func(int) {
		text := cmp.Or(r.String(), "a gap without a text")
		if len(d.view.Gaps) <= maxViewGaps {
			d.view.Gaps = append(d.view.Gaps, parse.ClipMessage(text))
		}
	})
}

// finish checks the whole view and keeps it if it is valid. named is the node in the file's
// name, if any. Views of machines outside the cluster and views of the future are kept,
// because the addresses that they show may be in use.
func (d *viewDraft) finish(named string) {
	v := &d.view
	_, known := d.nodes[v.Node]
	_, other := d.nodes[named]
	switch {
	case d.refused != "":
	case d.listing && d.nodes != nil && !known:
		d.refused = fmt.Sprintf("the cluster has no node %q", parse.Clip(v.Node))
	case other && named != v.Node:
		v.Doubt = fmt.Sprintf("node: the view is of %s, but the file is named for %s, so it proves nothing", parse.Clip(v.Node), named)
	}
	if d.refused != "" {
		d.gap(v.Node, v.Source, d.refused)
		return
	}
	for _, p := range d.problems {
		d.gap(v.Node, v.Source, p)
	}
	if d.forgotten > 0 {
		d.gap(v.Node, v.Source, fmt.Sprintf("%d more entries could not be parsed and were left out", d.forgotten))
	}
	for i, text := range v.Gaps {
		if i == maxViewGaps {
			d.gap(v.Node, v.Source, fmt.Sprintf("%d more things could not be read on the node", len(v.Gaps)-i))
			break
		}
		d.gap(v.Node, v.Source, "not read on the node: "+text)
	}
	d.finishSpaces()
	v.Routes = v.TellingRoutes(d.owned[v.Node])
	d.views = append(d.views, *v)
}

// full reports whether a view has reached the limit of entries, and if so rejects the view.
func (d *viewDraft) full(n int, what string) bool {
	if n < maxViewEntries {
		return false
	}
	d.refused = fmt.Sprintf("it has more than %d %s that concern the cluster's pools", maxViewEntries, what)
	return true
}
