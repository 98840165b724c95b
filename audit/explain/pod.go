package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
)

// pod explains a pod, or the addresses still allocated to a pod that does not exist.
func (x *explainer) pod(namespace, name string) Explained {
	full := namespace + "/" + name
	w := x.Pod(namespace, name)
	s := newBuilder(state.Subject{Kind: state.KindPod, Name: full})
	var addrs []netip.Addr
	if w != nil {
		s.Subject.Node = w.Node
		x.podSection(s, w)
		for a := range w.Addresses {
			addrs = append(addrs, a)
			x.podAddressSection(s, w, a)
		}
	}
	for _, r := range x.allocatedTo(namespace, name) {
		if a := r.Addr(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
			x.unreferencedSection(s, w, r)
		}
	}
	x.borrowOutcomeSection(s, slices.DeleteFunc(slices.Clone(x.Borrows), func(b *state.Borrow) bool { return w == nil || w.HostNetwork || !slices.Contains(addrs, b.Addr) }))
	if w != nil && !w.HostNetwork {
		x.podPoolsSection(s, w)
	}
	x.podFindings(s, w, addrs)
	x.podRemedy(s, w, addrs)
	s.Summary = x.podSummary(full, w, addrs)
	return s.done()
}

// podSection lists the fields of the pod.
func (x *explainer) podSection(s *builder, w *blocks.Workload) {
	s.section("Pod")
	src := podSource(w)
	s.fact(src, "state", podState(w))
	s.fact(src, "created", w.Created)
	if w.HostNetwork {
		s.fact(src, "network", "the host's: the pod uses its node's address, not one from Calico's IPAM")
	}
	s.fact(src, "IPAM", x.OtherIPAMOf(w))
	s.fact(src, "sandbox", w.ContainerID)
	for _, a := range w.Extras().StaticIPs {
		s.factf(src, "asks for", "%s (cni.projectcalico.org/ipAddrs)", a)
	}
	for _, a := range w.Extras().FloatingIPs {
		s.fact(src, "floating IP", a.String()+x.floatingText(a)+x.floatingRoute(w, a))
	}
	if n := x.nodeNamed(w.Node); n != nil {
		h := x.NodeState(w.Node)
		owns := "no block"
		if len(h.Blocks) > 0 {
			owns = state.CIDRs(h.Blocks).String()
		}
		s.fact(nodeSource(n), "node", w.Node+", which owns "+owns)
	} else if w.Node != "" {
		s.fact("", "node", w.Node+": "+x.NoNode(w.Node))
	}
}

// floatingText explains why traffic to a floating IP of a pod may not arrive, or not for long.
func (x *explainer) floatingText(a netip.Addr) (text string) {
	if x.FirstMissing([]blocks.Resource{blocks.FelixConfigs}) == nil && x.Felix.FloatingIPs != "Enabled" {
		text = "; Felix does not translate it to the pod's address: floatingIPs of the FelixConfiguration is not Enabled (the environment variable FELIX_FLOATINGIPS of calico-node overrides it)"
	}
	if p := x.EnabledPool(a); p != nil && x.unread(blocks.Blocks) == "" && !x.Reserved.Contains(a) {
		if _, recorded := x.Allocation(a); !recorded && p.Allows(blocks.UseWorkload) {
			text += "; no block records it, so Calico may assign it to another pod of pool " + p.Name + ": reserve it (IPReservation)"
		}
	}
	return text
}

// floatingRoute explains why other nodes may have no route to a floating IP of a pod: only BIRD announces
// one, if a pool contains it, and ignores those of VXLAN pools (confd bird_ipam.cfg.template).
func (x *explainer) floatingRoute(w *blocks.Workload, a netip.Addr) string {
	vxlan := func(p *state.Pool) bool { return p != nil && p.VXLAN.Encapsulated() }
	p := x.PoolOf(state.IPPrefix(a))
	switch {
	case x.unread(blocks.Pools) != "":
		return ""
	case vxlan(p):
		return "; other nodes have no route to it, because its pool uses VXLAN"
	case p == nil:
		return "; other nodes have no route to it, because it lies in no pool"
	case slices.ContainsFunc(w.StatusIPs, func(own netip.Addr) bool { return vxlan(x.PoolOf(state.IPPrefix(own))) }):
		return "; other nodes have a route to it only if calico-node runs BIRD, which VXLAN does not need"
	}
	return ""
}

// floatsOf names the live pods that have an address as a floating IP.
func (x *explainer) floatsOf(a netip.Addr) (out blocks.Names) {
	for _, w := range x.FloatsAt(a) {
		if w.Live() {
			out = append(out, "pod "+w.FullName())
		}
	}
	return out
}

// podAddressSection summarises an address of a pod.
func (x *explainer) podAddressSection(s *builder, w *blocks.Workload, a netip.Addr) {
	s.section("Address %s", a)
	where, _, _ := strings.Cut(podClaim(w, a), "; ")
	s.fact(podSource(w), "named", where)
	if w.HostNetwork {
		return
	}
	s.fact("", "place", x.placeText(a, w.Node))
	r, ok := x.Allocation(a)
	attr := r.AttributesIf(ok)
	if attr == nil {
		return
	}
	src := blockSource(r.Block)
	if attr.Pod != w.Name || attr.Namespace != w.Namespace {
		s.fact(src, "allocated to", x.holder(r.Block, r.Ordinal)+", and not to this pod")
	}
	if attr.Node != "" && attr.Node != w.Node {
		s.fact(src, "recorded node", attr.Node+", and not the pod's")
	}
	s.fact(src, "handle", attr.Handle+handleNote(attr, w))
	s.fact(src, "assigned", attr.Assigned)
	if others := others(x.usersOf(a), podSource(w)); len(others) > 0 {
		s.fact("", "also used by", describe(others))
	}
}

// handleNote compares an allocation's handle with the pod's sandbox: Calico's CNI plugin builds the
// handle from the network's name and the sandbox's ID (cni-plugin/internal/pkg/utils, GetHandleID).
func handleNote(attr *blocks.Attributes, w *blocks.Workload) string {
	if attr.Handle == "" || w.ContainerID == "" || strings.HasSuffix(attr.Handle, "."+w.ContainerID) {
		return ""
	}
	return ", but the pod's sandbox has another handle"
}

// others returns the current users of an address except one object.
func others(users []user, source string) (out []user) {
	for _, u := range users {
		if u.source != source && !u.past {
			out = append(out, u)
		}
	}
	return out
}

// placeText names the block of an address used on a node, and whether the node owns that block.
func (x *explainer) placeText(a netip.Addr, node string) string {
	if why := x.unread(blocks.Blocks); why != "" {
		return "its block is " + why
	}
	r, ok := x.Allocation(a)
	if !ok {
		switch b := x.CoveringBlock(a); {
		case b != nil:
			return ownedBlock(b) + " lists it as free"
		case x.PoolOf(state.IPPrefix(a)) == nil && x.unread(blocks.Pools) == "":
			return "outside all pools"
		case x.BlockMayCover(state.IPPrefix(a)):
			return "no readable block holds it"
		}
		return "no block holds it"
	}
	out := "in " + ownedBlock(r.Block)
	switch r.Block.Owner.Node() {
	case "":
		return out
	case node:
		return fmt.Sprintf("in block %s, the node's own", r.Block.CIDR)
	}
	return "borrowed: " + out
}

// unreferencedSection describes an address that is allocated to a pod although the pod does not
// name it.
func (x *explainer) unreferencedSection(s *builder, w *blocks.Workload, r state.AllocationRef) {
	src := blockSource(r.Block)
	s.section("Address %s", r.Addr())
	s.factf(src, "allocated to it", "in %s, on %s", ownedBlock(r.Block), phrase.OrNone(r.Attributes().Node))
	if w != nil {
		named := "the pod does not name it: " + podAddresses(w)
		if field := w.Extras().Unreadable; field != "" {
			named = "not known: its " + field + " cannot be read"
		}
		s.fact(podSource(w), "named", named)
	}
	s.fact(src, "handle", r.Attributes().Handle)
	s.fact(src, "assigned", r.Attributes().Assigned)
	if g := x.FirstMissing(useReads); g != nil {
		s.fact("", "verdict", "not known: "+g.String())
		return
	}
	s.fact("", "verdict", verdictText(x.Classify(r)))
}

// podPoolsSection lists the pools that may give a pod addresses, and why.
func (x *explainer) podPoolsSection(s *builder, w *blocks.Workload) {
	s.listed("Pools it may use")
	if why := x.unread(blocks.Pools); why != "" {
		s.fact("", "pools", why)
	}
	n := x.nodeNamed(w.Node)
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		if _, asks := x.RequestedPools(w, f); asks {
			x.requestFacts(s, w, f)
		}
		for _, p := range x.Pools {
			if p.Family() != f {
				continue
			}
			verdict, yes := x.MayServe(p, w, n)
			text := "no: " + verdict
			if yes {
				text = fmt.Sprintf("yes: %s; %s of %s blocks left to claim", verdict, p.Slots.Allocatable, p.Slots.Capacity)
				if x.IsAskedFor(p) && len(x.RequestedNames(w, f)) == 0 {
					text += "; others ask for it by name, which does not reserve it for them"
				}
			}
			s.fact(poolSource(p), p.Name, text)
		}
	}
}

// requestFacts lists the pools that a pod, or else its namespace, requests.
func (x *explainer) requestFacts(s *builder, w *blocks.Workload, f blocks.Family) {
	key, names := "ipv4pools", w.Extras().PoolsV4
	if f == blocks.IPv6 {
		key, names = "ipv6pools", w.Extras().PoolsV6
	}
	src := podSource(w)
	if len(names) == 0 {
		src = "namespace/" + w.Namespace
		if ns := x.Namespace(w.Namespace); ns != nil && f == blocks.IPv4 {
			names = ns.PoolsV4
		} else if ns != nil {
			names = ns.PoolsV6
		}
	}
	for _, name := range names {
		if p := x.PoolByNameOrCIDR(name); p == nil && x.unread(blocks.Pools) == "" && len(x.Unreadable(blocks.Pools)) == 0 {
			s.factf(src, "asks for", "%s (cni.projectcalico.org/%s): no such pool exists", name, key)
		} else {
			s.factf(src, "asks for", "%s (cni.projectcalico.org/%s)", name, key)
		}
	}
}

// podSummary summarises a pod in a sentence or two.
func (x *explainer) podSummary(full string, w *blocks.Workload, addrs []netip.Addr) string {
	words := make(blocks.Names, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	has := words.String()
	switch {
	case w == nil && x.unread(blocks.Pods) != "":
		return fmt.Sprintf("Whether there is a pod %s is %s. Allocated to it: %s.", full, x.unread(blocks.Pods), has)
	case w == nil:
		return fmt.Sprintf("No such pod exists. Allocated in its name: %s.", has)
	case w.HostNetwork:
		return "The pod is on its host's network: it uses the node's address, not one from Calico's IPAM."
	case w.Finished():
		return fmt.Sprintf("The pod is finished (%s): it will not use %s again.", podState(w), has)
	case w.Waiting() && len(addrs) == 0:
		return "The pod waits for an address" + phrase.OnNode(w.Node) + x.waitingReason(w) + "."
	case len(addrs) == 0 && w.Extras().Unreadable != "":
		return fmt.Sprintf("The pod's addresses are not known: its %s cannot be read.", w.Extras().Unreadable)
	case len(addrs) == 0:
		return fmt.Sprintf("The pod has no address (%s).", podState(w))
	}
	out := fmt.Sprintf("The pod is %s, with %s", podState(w), has)
	var borrowed, dropped blocks.Names
	for _, br := range x.Borrows {
		if slices.Contains(addrs, br.Addr) {
			name := br.Addr.String()
			if len(addrs) == 1 {
				name = "the address"
			}
			borrowed = append(borrowed, fmt.Sprintf("%s is borrowed from %s", name, br.Owner))
			if x.drops(br) {
				dropped = append(dropped, br.Owner)
			}
		}
	}
	if len(borrowed) > 0 {
		out += "; " + borrowed.String()
	}
	if len(dropped) > 0 {
		out += ", which drops traffic to it"
	}
	return out + "."
}

// waitingReason explains why a pod waits for an address, if its node's status shows why.
func (x *explainer) waitingReason(w *blocks.Workload) string {
	h := x.NodeState(w.Node)
	if h == nil {
		return ""
	}
	for _, n := range h.BlockStatus {
		for _, s := range n.Stuck {
			switch {
			case s.Pod != w:
			case s.Cause == state.CauseUnserved:
				return fmt.Sprintf(", and no %s pool may serve it", n.Family)
			case n.NoBlock():
				return fmt.Sprintf(", which has no %s block: %s", n.Family, s.Cause)
			case s.Blockless:
				return fmt.Sprintf(", which has no %s block for it: %s", n.Family, s.Cause)
			default:
				return fmt.Sprintf(", whose %s blocks are full: %s", n.Family, s.Cause)
			}
		}
	}
	switch p := waiting.Of(x.State).Find(w); {
	case p == nil:
		return ""
	case p.Unread != "":
		return "; why is not known: " + p.Unread
	default:
		return ": " + p.Text()
	}
}
