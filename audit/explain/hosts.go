package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// hostsSection shows the host views' data on an address: how the kernel of its block's owner routes
// it, and where it is in use.
func (x *explainer) hostsSection(s *builder, a netip.Addr, owners []string) {
	if !x.Snapshot.Hosts.Asked {
		return
	}
	s.section("On the nodes")
	for i, node := range owners {
		k := x.Views.Of(node)
		if node == "" || slices.Contains(owners[:i], node) {
			continue
		}
		if k == nil {
			s.fact("", "routes of "+node, "not known: there is no host view of it")
			continue
		}
		b := x.CoveringBlock(a)
		if b == nil {
			continue
		}
		answer := k.AnswerAt(a, b.CIDR)
		s.fact(k.Source, "routes of "+node, answer.String()+x.viewNote(k))
	}
	for _, u := range x.Views.Uses(a) {
		text := hosts.NamespaceText("", u.Namespace)
		if len(u.Namespace.HostInterfaces) > 0 {
			text += ", joined to the host by " + strings.Join(u.Namespace.HostInterfaces, ", ")
		}
		s.fact(u.View.Source, "in use on "+u.View.Node, text+x.viewNote(u.View))
	}
}

// viewNote gives the time of a view, and whether the view is too old to prove anything.
func (x *explainer) viewNote(k *hosts.View) string {
	if k.Stale() {
		return fmt.Sprintf(" (taken at %s, which proves nothing now)", blocks.TimeOf(k.TakenAt))
	}
	return fmt.Sprintf(" (at %s)", blocks.TimeOf(k.TakenAt))
}

// blockHostsSection lists the nodes whose routes drop traffic to a block.
func (x *explainer) blockHostsSection(s *builder, p netip.Prefix) {
	if !x.Snapshot.Hosts.Asked {
		return
	}
	s.listed("On the nodes")
	for i := range x.Snapshot.Hosts.Views {
		k := x.Views.Of(x.Snapshot.Hosts.Views[i].Node)
		if k == nil || k.HostView != &x.Snapshot.Hosts.Views[i] {
			continue
		}
		for j := range k.Routes {
			r := &k.Routes[j]
			if hosts.IsDropping(r.Type) && r.Dst.Bits() > 0 && r.Dst.Overlaps(p) {
				s.fact(k.Source, k.Node, hosts.RouteText(r)+x.viewNote(k))
			}
		}
	}
}

// nodeHostsSection describes a node's host view.
func (x *explainer) nodeHostsSection(s *builder, node string) {
	if !x.Snapshot.Hosts.Asked {
		return
	}
	s.section("Host view")
	if k := x.Views.Of(node); k != nil {
		s.fact(k.Source, "taken", blocks.TimeOf(k.TakenAt))
		var dropping []*blocks.HostRoute
		for i := range k.Routes {
			if r := &k.Routes[i]; hosts.IsDropping(r.Type) && r.Dst.Bits() > 0 {
				dropping = append(dropping, r)
			}
		}
		s.fact(k.Source, "drops", hosts.RoutesText(dropping))
		s.fact(k.Source, "namespaces", len(k.Namespaces))
	}
	found := false
	for _, g := range x.Views.Gaps() {
		if g.Node == node {
			found = true
			s.fact(g.Source, "gap", g.Reason)
		}
	}
	if x.Views.Of(node) == nil && !found {
		s.fact("", "gap", "there is no host view of it")
	}
}
