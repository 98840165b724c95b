package statedsl

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// view adds a host view of a node. Later lines that name the node add to the view.
func (p *parser) view(w words) {
	s := p.snap
	s.Hosts.Asked, s.Hosts.Until = true, s.Cluster.TakenAt
	at := s.Cluster.TakenAt
	if d, ok := w.duration("age"); ok {
		at = at.Add(-d)
	}
	source := "views/" + w.at(0) + ".json"
	if w.has("source") {
		source = w.get("source")
	}
	s.Hosts.Views = append(s.Hosts.Views, blocks.HostView{
		APIVersion: blocks.APIVersion, Kind: blocks.HostViewKind, Node: w.at(0), TakenAt: at,
		Source: source, RulesKnown: !w.has("routes"), RoutesPartial: w.has("partial"),
		LookupsPartial: w.has("partial"), BootID: w.get("boot"), Machine: w.get("boot"),
		Authenticated: !w.has("unauth"), NamespacesComplete: w.has("complete"), NamespacesGap: strings.ReplaceAll(w.get("lacks"), "_", " "),
	})
}

// viewOf returns the node's last view. It panics if no earlier line made one.
func (p *parser) viewOf(node string) *blocks.HostView {
	for i := len(p.snap.Hosts.Views) - 1; i >= 0; i-- {
		if v := &p.snap.Hosts.Views[i]; v.Node == node {
			return v
		}
	}
	panic(fmt.Sprintf("no view of %s", node))
}

func (p *parser) route(w words) {
	v := p.viewOf(w.at(0))
	r := blocks.HostRoute{
		Dst: netip.MustParsePrefix(w.at(1)), Type: w.at(2), Protocol: w.get("proto"), Table: "main",
		Metric: w.number("metric", 0), Gateway: w.get("via"), Dev: w.get("dev"),
	}
	if w.has("table") {
		r.Table = w.get("table")
	}
	v.Routes = append(v.Routes, r)
}

func (p *parser) lookup(w words) {
	v := p.viewOf(w.at(0))
	l := blocks.HostLookup{
		Dst: netip.MustParsePrefix(w.at(1)), Result: w.at(2), Gateway: w.get("via"), Dev: w.get("dev"), Table: w.get("table"),
	}
	if w.has("none") { // "none" is also a flag
		l.Result = blocks.RouteNone
	}
	if w.has("match") {
		l.Match = netip.MustParsePrefix(w.get("match"))
	}
	v.Lookups = append(v.Lookups, l)
}

func (p *parser) netns(w words) {
	v := p.viewOf(w.at(0))
	n := blocks.HostNamespace{
		ID: w.at(1), Name: w.get("name"), Host: w.has("host"), Sandbox: w.get("sandbox"), PodUID: w.get("uid"),
		Commands: w.list("cmd"), States: w.list("state"), HostInterfaces: []string{"cali" + w.at(1)},
	}
	if w.has("inner") {
		n.HostInterfaces = []string{}
	}
	for _, a := range strings.Split(w.at(2), ",") {
		if !strings.Contains(a, "/") {
			addr := netip.MustParseAddr(a)
			n.Addresses = append(n.Addresses, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		n.Addresses = append(n.Addresses, netip.MustParsePrefix(a))
	}
	for _, s := range w.list("pids") {
		pid, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		n.Pids = append(n.Pids, pid)
	}
	n.Processes = len(n.Pids)
	v.Namespaces = append(v.Namespaces, n)
}

func (p *parser) hostGap(w words) {
	p.snap.Hosts.Asked = true
	p.snap.Hosts.Gaps = append(p.snap.Hosts.Gaps, blocks.HostGap{Node: w.at(0), Reason: strings.Join(w.pos[1:], " ")})
}
