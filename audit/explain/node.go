package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// node explains a node, or the remains of a vanished one.
func (x *explainer) node(name string) Explained {
	h := x.NodeState(name)
	if h == nil {
		h = &state.NodeState{Name: name}
		for i := range x.Affinities {
			if a := &x.Affinities[i]; a.Owner.Node() == name {
				h.Affinities = append(h.Affinities, a)
			}
		}
	}
	s := newBuilder(state.NodeSubject(name))
	x.nodeSection(s, h)
	if h.Node != nil {
		x.nodePoolsSection(s, h.Node)
	}
	x.nodeBlocksSection(s, h)
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		x.blockStatusSection(s, h, f)
	}
	x.tunnelSection(s, h)
	x.nodeBorrowSections(s, h)
	x.strandedSection(s, h)
	x.nodeHostsSection(s, name)
	x.nodeFindings(s, name)
	x.nodeRemedy(s, h)
	s.Summary = x.nodeSummary(h)
	return s.done()
}

// nodeSection lists the fields of the node.
func (x *explainer) nodeSection(s *builder, h *state.NodeState) {
	s.section("Node")
	n := h.Node
	if n == nil {
		s.fact("", "exists", x.NoNode(h.Name))
		return
	}
	src := nodeSource(n)
	s.fact(src, "exists", "yes"+comma(since(n.Created))+readyText(n))
	s.fact(src, "schedulable", schedulableText(h))
	if n.Windows {
		s.fact(src, "system", "Windows")
	}
	if n.AllocatablePods() > 0 {
		s.fact(src, "allocatable pods", n.AllocatablePods())
	}
	live, waiting, unread := 0, 0, ""
	for _, w := range h.Workloads {
		switch {
		case w.Live():
			live++
		case w.MayBeLive():
			unread = "; the state of others, such as " + w.FullName() + ", cannot be read"
		}
		if w.Waiting() {
			waiting++
		}
	}
	if x.unread(blocks.Pods) == "" {
		s.factf("", "pods", "%d of the pod network, %d waiting for an address%s", live, waiting, unread)
	} else {
		s.fact("", "pods", x.unread(blocks.Pods))
	}
	for _, a := range n.Addresses {
		s.fact(src, "address", a.String()+besideInternal(n, a.Addr()))
	}
	for _, c := range n.PodCIDRs {
		if !x.OtherIPAM().Cluster {
			s.fact(src, "podCIDR", c.String()+", which Calico's IPAM ignores")
		}
	}
	if n.ASNumber != 0 {
		s.fact(src, "AS number", n.ASNumber)
	}
	if n.RouteReflectorID != "" {
		s.factf(src, "route reflector", "cluster ID %s", n.RouteReflectorID)
	}
}

// besideInternal compares the Calico address of a node with its InternalIPs of that family.
func besideInternal(n *blocks.Node, a netip.Addr) string {
	others := slices.DeleteFunc(slices.Clone(n.InternalIPs), func(o netip.Addr) bool { return o.Is4() != a.Is4() })
	if len(others) == 0 || slices.Contains(others, a) {
		return ""
	}
	return fmt.Sprintf("; its InternalIP is %s, and other nodes reach its pods only if their packets arrive at %s", others[0], a)
}

func schedulableText(h *state.NodeState) string {
	var against blocks.Names
	if h.Node.Unschedulable {
		against = append(against, "it is cordoned")
	}
	for _, t := range h.Node.KeepsAway() {
		against = append(against, "it has the taint "+t.Key)
	}
	reasons := against.String()
	switch {
	case len(against) == 0 && h.Node.NoNetwork():
		return "yes, but no pod is scheduled until its calico-node is Ready: it has the taint " + blocks.TaintNetwork
	case len(against) == 0:
		return "yes"
	case h.Schedulable:
		return "yes, as pods of the pod network run on it, although " + reasons
	}
	return "no: " + reasons
}

// nodePoolsSection lists the pools that serve a node, and why other pools do not.
func (x *explainer) nodePoolsSection(s *builder, n *blocks.Node) {
	s.listed("Pools")
	if why := x.unread(blocks.Pools); why != "" {
		s.fact("", "pools", why)
	}
	for _, p := range x.Pools {
		text := fmt.Sprintf("%s, %s", p.CIDR, x.whyPoolServes(p, n))
		if x.unread(blocks.Blocks) == "" && !p.Disabled && p.SelectsNode(n) {
			text += fmt.Sprintf("; %s of %s blocks left to claim", p.Slots.Allocatable, p.Slots.Capacity)
		}
		s.fact(poolSource(p), p.Name, text)
	}
}

// whyPoolServes explains why a pool does or does not serve a node's pods.
func (x *explainer) whyPoolServes(p *state.Pool, n *blocks.Node) string {
	switch {
	case p.Disabled:
		return "disabled"
	case !p.HandsOut():
		return "serves no pod: " + p.WhyClosed()
	case p.SelectorError() != nil:
		return fmt.Sprintf("serves no pod: a selector cannot be parsed (%v)", p.SelectorError())
	case !p.Allows(blocks.UseWorkload):
		return "does not serve pods: it serves " + phrase.Uses(p.Uses)
	case !p.SelectsNode(n) && !p.Automatic:
		return "serves only pods that ask for it"
	case !p.SelectsNode(n):
		return fmt.Sprintf("does not select the node (%s)", p.NodeSelector)
	case !p.Automatic:
		return "serves only pods that ask for it"
	}
	out := "selects the node"
	if !p.NodeSelection.MatchesAll() {
		out += fmt.Sprintf(" (%s)", p.NodeSelector)
	}
	if !p.ServesAllNamespaces() {
		out += fmt.Sprintf(", and pods of namespaces that match %s", p.NamespaceSelector)
	}
	return out
}

// nodeBlocksSection lists the blocks whose owner is the node, and the node's affinities without
// such a block.
func (x *explainer) nodeBlocksSection(s *builder, h *state.NodeState) {
	s.listed("Blocks")
	if why := x.unread(blocks.Blocks); why != "" {
		s.fact("", "blocks", why)
	}
	for _, b := range h.Blocks {
		text := fmt.Sprintf("%d in use", b.Used)
		if free := x.Unused(b); b.Used > 0 {
			text += fmt.Sprintf(", %d left", free)
		} else if b.Releasability.OK {
			text += ", could be released now"
		} else {
			text += ", must stay: " + b.Releasability.Reason
		}
		if b.Pool == nil {
			text += "; in no pool"
		} else {
			text += "; in pool " + b.Pool.Name
		}
		text += x.affinityNote(h.Name, b)
		if b.SoftDeleted {
			text += "; marked deleted"
		}
		if len(b.Faults) > 0 {
			text += "; " + x.corrupt() + ": " + b.Faults[0]
		}
		s.fact(blockSource(b), b.CIDR.String(), text)
	}
	for _, a := range h.Affinities {
		if b := x.BlockOf(a.CIDR); b == nil || b.Owner != a.Owner {
			s.factf(sourceOf("blockaffinity", a.Meta), a.CIDR.String(), "not its own, although it has an affinity: %s", x.claimText(a, b))
		}
	}
}

// affinityNote describes a problem with the node's affinity to its own block; empty if there is
// none.
func (x *explainer) affinityNote(node string, b *state.Block) string {
	if x.unread(blocks.Affinities) != "" || x.AffinityMayExist(b.CIDR, node) {
		return ""
	}
	for _, a := range x.AffinitiesOf(b.CIDR) {
		if a.Owner.Node() == node {
			if a.Effective() == blocks.Confirmed {
				return ""
			}
			return "; its affinity is " + string(a.Effective())
		}
	}
	return "; without an affinity"
}

// nodeSummary summarises a node in a sentence or two.
func (x *explainer) nodeSummary(h *state.NodeState) string {
	if h.Node == nil {
		out := capital(x.NoNode(h.Name))
		if len(h.Blocks) > 0 {
			out += "; blocks in its name: " + state.CIDRs(h.Blocks).String()
		}
		if len(h.Affinities) > 0 {
			out += fmt.Sprintf("; affinities: %d", len(h.Affinities))
		}
		return out + "."
	}
	if x.unread(blocks.Blocks) != "" {
		return "The node exists; its blocks are " + x.unread(blocks.Blocks) + "."
	}
	var parts []string
	for _, n := range h.BlockStatus {
		if doubt := x.DoubtOf(n); n.NoBlock() && doubt != "" {
			parts = append(parts, fmt.Sprintf("may have an %s block: %s", n.Family, doubt))
		} else if n.NoBlock() || n.Blockless() > 0 {
			_, text := checks.GradeNoBlock(n)
			parts = append(parts, text)
		}
	}
	if len(h.Blocks) > 0 {
		used := 0
		for _, b := range h.Blocks {
			used += b.Used
		}
		least := ""
		if x.UnreadOfNode(h.Name) > 0 {
			least = "at least "
		}
		own := fmt.Sprintf("owns blocks (%s%d, addresses in use: %s%d)", least, len(h.Blocks), least, used)
		if len(h.Lent) > 0 {
			own += fmt.Sprintf("; %s borrow from it (%d)", borrowers(h.Lent), len(h.Lent))
		}
		parts = append([]string{own}, parts...)
	}
	if len(h.Borrowed) > 0 && !slices.ContainsFunc(h.BlockStatus, (*state.NodeBlockStatus).NoBlock) {
		lenders := audit.Names(h.Borrowed, func(b *state.Borrow) string { return b.Owner })
		parts = append(parts, fmt.Sprintf("borrows from %s (%d)", lenders, len(h.Borrowed)))
	}
	if len(h.Blocks) == 0 && x.unread(blocks.Pods) != "" {
		parts = append(parts, "owns no block; whether its pods need one is "+x.unread(blocks.Pods))
	}
	if len(parts) == 0 {
		parts = []string{"owns no block, and needs none"}
	}
	return "The node " + strings.Join(parts, "; ") + "."
}

// capital returns a sentence with an upper-case first letter.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
