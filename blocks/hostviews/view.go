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
)

const (
	// maxViewEntries limits how many routes, lookups and namespaces of a view are
	// kept, each.
	maxViewEntries = 200_000
	// maxViewGaps limits how many gaps of one view are told one by one.
	maxViewGaps = 5
	// maxViewProcesses limits how many processes of a namespace are kept.
	maxViewProcesses = 8
)

// viewReader gathers host views for a snapshot.
type viewReader struct {
	snapshot *blocks.Snapshot
	opts     Options
	// nodes are the cluster's, each with the addresses that it has for BGP; nil if
	// they were not read whole.
	nodes map[string][]netip.Prefix
	// concerned are the addresses of pools and blocks: other routes decide no verdict.
	concerned *netipx.IPSet
	// owned are each node's blocks.
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
	g.concerned, _ = all.IPSet() // all prefixes are valid: readers drop others as gaps
	return g
}

// gap notes a view, or a part of one, that could not be had.
func (g *viewReader) gap(node, source, reason string) {
	g.gaps = append(g.gaps, blocks.HostGap{Node: node, Source: source, Reason: reason})
}

// viewDraft is a view in the making.
type viewDraft struct {
	*viewReader
	view blocks.HostView
	// taken is takenAt as it is written, refused why the view as a whole is no good.
	taken, refused string
	// problems are what was left out: the first of them, and how many there are.
	problems  []string
	forgotten int
	// listing is true for what the ip command lists.
	listing bool
	spaces  spacesDraft
}

// problem notes that a part of the view was left out.
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

// entries reads a list of what. of returns where the values of an entry's members go,
// and what keeps it. What is wrong with a value leaves the whole entry out.
func (d *viewDraft) entries(r *decode.JSONReader, list, what string, partial *bool, of func(r *decode.JSONReader, bad func(field, reason string)) (decode.Members, func())) {
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

func (g *viewReader) reader(text []byte) *decode.JSONReader {
	r := decode.NewJSONReader(text)
	r.Share = g.strings.Bytes
	return r
}

// listing reads a listing of routes.
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

// object reads a host view in JSON whose syntax is good.
func (g *viewReader) object(source string, text []byte) {
	d := &viewDraft{viewReader: g}
	d.view.Source, d.view.RulesKnown, d.view.Authenticated = source, true, true
	d.decode(d.reader(text))
	d.finish(nodeOfFile(source))
}

// agentView reads the view that the agent of a node gave.
func (g *viewReader) agentView(source, node string, text []byte, authenticated bool) {
	if err := decode.CheckSyntax(text, 1, 1); err != nil {
		g.gap(node, source, "the agent's answer is no JSON: "+err.Error())
		return
	}
	d := &viewDraft{viewReader: g}
	d.view.Source, d.view.RulesKnown, d.view.Authenticated = source, true, authenticated
	d.decode(d.reader(text))
	if d.refused == "" && d.view.Node != node {
		d.view.Doubt = fmt.Sprintf("the agent says that it is on node %q, and its pod is on %q, so that it proves nothing", decode.Clip(d.view.Node), node)
	}
	d.view.Node = node
	d.finish("")
}

func (d *viewDraft) decode(r *decode.JSONReader) {
	if r.Peek() != '{' {
		d.refused = "it is no HostView, but " + decode.Clip(r.Text)
		return
	}
	var kind, version string
	r.Fields(decode.Members{
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
		d.refused = fmt.Sprintf("it is of kind %q and apiVersion %q, not a %s of %s", decode.Clip(kind), decode.Clip(version), blocks.HostViewKind, blocks.APIVersion)
	case d.view.Node == "":
		d.refused = "node is missing: it does not say which node it is of"
	case d.taken == "":
		d.refused = "takenAt is missing: when it was taken is not known"
	case err != nil:
		d.refused = "takenAt: " + decode.NotA("time such as 2026-01-31T08:00:00Z", d.taken)
	default:
		d.view.TakenAt = at.UTC()
	}
}

// gaps reads what the agent could not read. What makes no sense among it may be
// anything.
func (d *viewDraft) gaps(r *decode.JSONReader) {
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
			d.view.Gaps = append(d.view.Gaps, decode.ClipMessage(text))
		}
	})
}

// finish checks a view as a whole and keeps it if it is good. named is the node that
// the file's name may mean. A view of a machine that is not a node of the cluster is
// kept, and so is one of the future: what they show in use may be so.
func (d *viewDraft) finish(named string) {
	v := &d.view
	_, known := d.nodes[v.Node]
	_, other := d.nodes[named]
	switch {
	case d.refused != "":
	case d.listing && d.nodes != nil && !known:
		d.refused = fmt.Sprintf("the cluster has no node %q", decode.Clip(v.Node))
	case other && named != v.Node:
		v.Doubt = fmt.Sprintf("node: it is of %s, and the file is named for %s, so that it proves nothing", decode.Clip(v.Node), named)
	}
	if d.refused != "" {
		d.gap(v.Node, v.Source, d.refused)
		return
	}
	for _, p := range d.problems {
		d.gap(v.Node, v.Source, p)
	}
	if d.forgotten > 0 {
		d.gap(v.Node, v.Source, fmt.Sprintf("%d more entries could not be understood and were left out", d.forgotten))
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

// full reports whether a view has as many entries as are kept, and refuses it then.
func (d *viewDraft) full(n int, what string) bool {
	if n < maxViewEntries {
		return false
	}
	d.refused = fmt.Sprintf("it has more than %d %s that concern the cluster's pools", maxViewEntries, what)
	return true
}
