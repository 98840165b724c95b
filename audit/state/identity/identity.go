// Package identity finds nodes with a doubtful identity: two nodes with the same address, nodes without
// a Calico address, and machines on which calico-node uses another node's name.
package identity

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/misrecorded"
	"github.com/calico-audit/calico-audit/blocks"
)

// Duplicate is a node that has an address of other nodes.
type Duplicate struct {
	Node *blocks.Node
	// Others are the nodes of the group before this one, by name. If Stale is set, they are the
	// nodes with the InternalIP that this node records as its Calico address.
	Others []*blocks.Node
	// Calico and Internal are the shared Calico addresses and InternalIPs, in order.
	Calico, Internal []netip.Addr
	// Stale is true if the node's Calico address is not its own InternalIP, but another node's.
	Stale bool
}

// Alive reports whether each of the nodes is Ready and has InternalIPs of its own: all machines
// exist, and calico-node detected an address that they share.
func (d *Duplicate) Alive() bool {
	return len(d.Internal) == 0 && d.AllReady() && !slices.ContainsFunc(append(slices.Clip(d.Others), d.Node), func(n *blocks.Node) bool { return len(n.InternalIPs) == 0 })
}

// AllReady reports whether each of the nodes is Ready: all machines exist.
func (d *Duplicate) AllReady() bool {
	return !slices.ContainsFunc(append(slices.Clip(d.Others), d.Node), func(n *blocks.Node) bool { return !n.Ready })
}

// Misreported returns the nodes on which the kubelet reports an InternalIP that is not the
// machine's own, in order. All nodes with that InternalIP are Ready, and calico-node found another
// address on each, except on the one machine that may really have it.
func (d *Duplicate) Misreported() (names blocks.Names) {
	all := append(slices.Clip(d.Others), d.Node)
	for _, n := range all {
		own := slices.IndexFunc(n.Addresses, func(p netip.Prefix) bool {
			return len(d.Internal) > 0 && blocks.FamilyOf(p.Addr()) == blocks.FamilyOf(d.Internal[0])
		})
		if own < 0 || !n.Ready || len(d.Calico) > 0 {
			return nil
		}
		if !slices.Contains(d.Internal, n.Addresses[own].Addr()) {
			names = append(names, n.Name)
		}
	}
	return names
}

// WrongNode is a live pod whose allocation names another node.
type WrongNode struct {
	state.AllocationRef
	Pod *blocks.Workload
}

// verdicts are computed once for a state.
type verdicts struct {
	duplicates []Duplicate
	wrong      []WrongNode
	// writtenAs holds, by node, the one other node that the allocations of its pods name.
	writtenAs map[string]string
	doubts    map[string]string
}

// Duplicates returns the nodes that share an address with another node.
func Duplicates(st *state.State) []Duplicate { return of(st).duplicates }

// WrongNodes returns the live pods whose allocations name another node, in order of their addresses
// in their blocks. Those of [misrecorded.Of] are left out.
func WrongNodes(st *state.State) []WrongNode { return of(st).wrong }

// WrittenAs returns the other node that the allocations of a node's pods name, if all wrong names
// are the same; "" otherwise. The machine then has that name in /var/lib/calico/nodename, or in
// NODENAME of its calico-node.
func WrittenAs(st *state.State, node string) string { return of(st).writtenAs[node] }

// Doubt explains why new pods of a node may be recorded for, or routed to, another node; "" if no
// object shows that.
func Doubt(st *state.State, node string) string { return of(st).doubts[node] }

func of(st *state.State) *verdicts { return state.Derived(st, find) }

func find(st *state.State) *verdicts {
	v := &verdicts{writtenAs: map[string]string{}, doubts: map[string]string{}}
	v.findDuplicates(st)
	v.findWrong(st)
	return v
}

func (v *verdicts) findDuplicates(st *state.State) {
	calico, internal := map[netip.Addr][]*blocks.Node{}, map[netip.Addr][]*blocks.Node{}
	for _, h := range st.NodeStates { // by name
		n := h.Node
		if n == nil {
			continue
		}
		d := Duplicate{Node: n}
		shares := func(before map[netip.Addr][]*blocks.Node, a netip.Addr) bool {
			others := before[a]
			before[a] = append(before[a], n)
			for _, o := range others {
				if !slices.Contains(d.Others, o) {
					d.Others = append(d.Others, o)
				}
			}
			return len(others) > 0
		}
		for _, p := range n.Addresses {
			if shares(calico, p.Addr()) {
				d.Calico = append(d.Calico, p.Addr())
			}
		}
		for _, a := range n.InternalIPs {
			if shares(internal, a) {
				d.Internal = append(d.Internal, a)
			}
		}
		if len(d.Others) == 0 {
			continue
		}
		slices.SortFunc(d.Others, func(a, b *blocks.Node) int { return strings.Compare(a.Name, b.Name) })
		// Keep one entry per group: that of the last node, because its Others are all the other
		// nodes.
		v.duplicates = slices.DeleteFunc(v.duplicates, func(e Duplicate) bool {
			return slices.Equal(e.Calico, d.Calico) && slices.Equal(e.Internal, d.Internal) && slices.Contains(d.Others, e.Node)
		})
		v.duplicates = append(v.duplicates, d)
	}
	var stale []Duplicate
	for _, h := range st.NodeStates {
		if h.Node == nil || slices.ContainsFunc(v.duplicates, func(d Duplicate) bool { return d.Node == h.Node || slices.Contains(d.Others, h.Node) }) {
			continue
		}
		d := Duplicate{Node: h.Node, Stale: true}
		for _, p := range h.Node.Addresses {
			if o := internal[p.Addr()]; len(o) > 0 && len(h.Node.InternalIPs) > 0 && !slices.Contains(h.Node.InternalIPs, p.Addr()) {
				d.Calico, d.Others = append(d.Calico, p.Addr()), o
			}
		}
		if len(d.Calico) > 0 {
			stale = append(stale, d)
		}
	}
	v.duplicates = append(v.duplicates, stale...)
	for _, d := range v.duplicates {
		for _, o := range append(slices.Clip(d.Others), d.Node) {
			v.doubts[o.Name] = cmp.Or(v.doubts[o.Name], d.Text())
		}
	}
}

// Text describes the shared addresses and their nodes.
func (d *Duplicate) Text() string {
	if d.Stale {
		return fmt.Sprintf("node %s records the Calico address %s, which is the InternalIP of node %s", d.Node.Name, addresses(d.Calico), d.Others[0].Name)
	}
	var names blocks.Names
	for _, o := range append(slices.Clip(d.Others), d.Node) {
		names = append(names, o.Name)
	}
	what := "Calico address " + addresses(d.Calico)
	if len(d.Calico) == 0 {
		what = "InternalIP " + addresses(d.Internal)
	}
	return fmt.Sprintf("nodes %s have the same %s", names, what)
}

func addresses(all []netip.Addr) string {
	out := make(blocks.Names, len(all))
	for i, a := range all {
		out[i] = a.String()
	}
	return out.String()
}

func (v *verdicts) findWrong(st *state.State) {
	mixed := map[string]bool{}
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		attr := r.Attributes()
		if attr.Node == "" || attr.Cooling() || r.Block.SoftDeleted || attr.Tunnel() {
			return
		}
		w := st.LiveUserOf(r)
		if w == nil || w.Node == "" || w.Node == attr.Node || misrecorded.Has(st, r) {
			return
		}
		if alt := attr.Extras().Alternate; alt != nil && alt.Pod == w.Name && alt.Namespace == w.Namespace {
			return // the target of a live migration
		}
		v.wrong = append(v.wrong, WrongNode{r, w})
		if w.Extras().VM != "" {
			return // it may have moved
		}
		if before, known := v.writtenAs[w.Node]; known && before != attr.Node {
			mixed[w.Node] = true
		}
		v.writtenAs[w.Node] = attr.Node
	})
	for node := range mixed {
		delete(v.writtenAs, node)
	}
	for node, as := range v.writtenAs {
		v.doubts[node] = cmp.Or(v.doubts[node], fmt.Sprintf("the allocations of pods on %s name node %s", node, as))
	}
}

// Missing is a node that runs pods of the pod network but records no Calico address, or none of a
// family of its pods.
type Missing struct {
	*state.NodeState
	Pods []*blocks.Workload
	// Family is the family that the node lacks; 0 if it records no Calico address at all.
	Family blocks.Family
	// Everywhere is true if no node records a Calico address of the family.
	Everywhere bool
}

// Severity is a warning if no node records an address of the family, because pods may only use
// theirs for traffic that leaves the cluster.
func (m *Missing) Severity() state.Severity {
	if m.Everywhere {
		return state.Warning
	}
	return state.Error
}

// Text describes the node and its pods.
func (m *Missing) Text() string {
	if m.Family == 0 {
		return fmt.Sprintf("node %s runs %s of the pod network and records no Calico address", m.Name, phrase.Plural(len(m.Pods), "pod"))
	}
	return fmt.Sprintf("node %s runs %s with %s addresses of Calico's and records no Calico address of that family", m.Name, phrase.Plural(len(m.Pods), "pod"), m.Family)
}

// WithoutAddress returns the nodes that run pods of the pod network and record no Calico address,
// although other nodes do. Then come the nodes that record one, but none of a family of their pods:
// BIRD and Felix set up no route of that family between nodes (confd's bird6.cfg.template). If no
// node records an address of the family, a single such node is left out, because it has no other
// node to route to.
func WithoutAddress(st *state.State) (out []Missing) {
	if !slices.ContainsFunc(st.Nodes, func(n blocks.Node) bool { return len(n.Addresses) > 0 }) {
		return nil
	}
	each := func(f blocks.Family, lacks func(*blocks.Node) bool, has func(*blocks.Workload) bool) (found []Missing) {
		for _, h := range st.NodeStates {
			if h.Node == nil || !lacks(h.Node) || st.UnreadableNode(h.Name) || !st.PastGrace(h.Node.Created) {
				continue
			}
			m := Missing{NodeState: h, Family: f}
			for _, w := range h.Workloads {
				if has(w) && st.Assigned(w) {
					m.Pods = append(m.Pods, w)
				}
			}
			if len(m.Pods) > 0 {
				found = append(found, m)
			}
		}
		return found
	}
	out = each(0, func(n *blocks.Node) bool { return len(n.Addresses) == 0 }, func(w *blocks.Workload) bool { return len(w.StatusIPs)+len(w.AnnotationIPs) > 0 })
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		of := func(p netip.Prefix) bool { return blocks.FamilyOf(p.Addr()) == f }
		known := slices.ContainsFunc(st.Nodes, func(n blocks.Node) bool { return slices.ContainsFunc(n.Addresses, of) })
		lacking := each(f, func(n *blocks.Node) bool { return len(n.Addresses) > 0 && !slices.ContainsFunc(n.Addresses, of) }, func(w *blocks.Workload) bool {
			return slices.ContainsFunc(slices.Concat(w.StatusIPs, w.AnnotationIPs), func(a netip.Addr) bool {
				_, recorded := st.Allocation(a)
				return recorded && blocks.FamilyOf(a) == f
			})
		})
		if !known && (len(lacking) < 2 || len(st.Unreadable(blocks.Nodes)) > 0) {
			continue
		}
		for i := range lacking {
			lacking[i].Everywhere = !known
		}
		out = append(out, lacking...)
	}
	return out
}

// Apart is a node whose Calico address differs from its InternalIP. On all other nodes the two are
// equal, and their InternalIPs are in one network. If Former, the node's Calico
// address is in that network, too, and may be the machine's former address
// (projectcalico/calico#8700). Otherwise calico-node detected an interface that leads to no other
// node, such as a bridge.
type Apart struct {
	Node   *blocks.Node
	Former bool
	// Two is true if there is only one other node, so that either address may be meant.
	Two bool
	// Pods describes a Calico address of the pods' network, such as "in pool x", or of the loopback
	// device. Other nodes are then not compared, and Other is nil. It is empty for an address of the
	// machine's network.
	Pods string
	// Network is true if the Calico address is not the InternalIP, but the address of its network:
	// calico-node took it from the CIDR of an interface (projectcalico/calico#6141). Other is nil.
	Network bool
	// Calico is the node's Calico address. Internal is its InternalIP. It lies in the network of
	// Other, a node with its InternalIP as its Calico address.
	Calico   netip.Prefix
	Internal netip.Addr
	Other    *blocks.Node
}

// Text describes the node's two addresses.
func (a *Apart) Text() string {
	records := fmt.Sprintf("node %s records the Calico address %s", a.Node.Name, a.Calico)
	switch {
	case a.Network:
		return fmt.Sprintf("%s, the address of its network instead of its own; its InternalIP is %s", records, a.Internal)
	case a.Pods != "":
		return fmt.Sprintf("%s, which is %s; its InternalIP is %s", records, a.Pods, a.Internal)
	case a.Former:
		return fmt.Sprintf("node %s records the Calico address %s, and its InternalIP is %s; for all other nodes, such as %s, the two are equal", a.Node.Name, a.Calico.Addr(), a.Internal, a.Other.Name)
	}
	others := "all others, such as"
	if a.Two {
		others = "the other node,"
	}
	return fmt.Sprintf("%s, in a network without any other node; its InternalIP %s is in the network of %s %s", records, a.Internal, others, a.Other.Name)
}

// Aparts returns the nodes that are [Apart], by name. Nodes of [Duplicates] are left out.
func Aparts(st *state.State) []Apart { return *state.Derived(st, findAparts) }

// RoutesPods reports whether other nodes route to pods of this node by its Calico address. They do
// if it has a tunnel, even if another IPAM assigned the pods' addresses.
func (a *Apart) RoutesPods(st *state.State) bool {
	return slices.ContainsFunc(st.NodeState(a.Node.Name).Workloads, func(w *blocks.Workload) bool {
		return len(w.StatusIPs) > 0 && (st.Assigned(w) || a.Pods != "" && w.Live() && len(a.Node.Tunnels) > 0)
	})
}

// MachineAddresses returns a node's Calico addresses, except those in the pods' network. If a node
// cannot be read, the nodes' network is not known, and only InternalIPs are certain.
func MachineAddresses(st *state.State, n *blocks.Node) []netip.Prefix {
	unread := len(st.Unreadable(blocks.Nodes)) > 0
	if len(Aparts(st)) == 0 && !unread {
		return n.Addresses
	}
	return slices.DeleteFunc(slices.Clone(n.Addresses), func(p netip.Prefix) bool {
		return unread && !slices.Contains(n.InternalIPs, p.Addr()) ||
			slices.ContainsFunc(Aparts(st), func(a Apart) bool { return a.Pods != "" && a.Node == n && a.Calico == p })
	})
}

// RoutedLikePods describes the first address of a node that lies in a pool and in a block of a
// node, as the end of a sentence: other nodes route the block, and often with it the address, to
// the block's node or into its tunnel (projectcalico/calico#12847). It returns "" if there is none.
func RoutedLikePods(st *state.State, p *state.Pool) string {
	if st.OtherIPAM().Cluster {
		return ""
	}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		own := slices.DeleteFunc(slices.Clone(n.InternalIPs), func(a netip.Addr) bool {
			return slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Addr == a })
		})
		for _, a := range MachineAddresses(st, n) {
			own = append(own, a.Addr())
		}
		for _, a := range own {
			if !p.CIDR.Contains(a) {
				continue
			}
			if b := st.CoveringBlock(a); b != nil && st.NodeState(b.Owner.Node()) != nil && st.NodeState(b.Owner.Node()).Node != nil {
				return fmt.Sprintf(", and other nodes may route %s like the pods of %s, which has block %s", a, b.Owner.Node(), b.CIDR)
			}
		}
	}
	return ""
}

func findAparts(st *state.State) *[]Apart {
	var out []Apart
	for _, h := range st.NodeStates {
		n := h.Node
		if n == nil || slices.ContainsFunc(Duplicates(st), func(d Duplicate) bool { return d.Node == n || slices.Contains(d.Others, n) }) {
			continue
		}
		for _, p := range n.Addresses {
			if slices.Contains(n.InternalIPs, p.Addr()) {
				continue
			}
			if own := slices.IndexFunc(n.InternalIPs, p.Masked().Contains); own >= 0 && p == p.Masked() {
				out = append(out, Apart{Node: n, Network: true, Calico: p, Internal: n.InternalIPs[own]})
				continue
			}
			if pods, internal := ofPods(st, n, p); pods != "" {
				out = append(out, Apart{Node: n, Pods: pods, Calico: p, Internal: internal})
				continue
			}
			if a, others := sharedNetwork(st, n, blocks.FamilyOf(p.Addr())); len(others) > 0 {
				former, two := p.Masked().Contains(a), len(others) == 1
				if former && !two || !othersIn(st, n, p) && (!two || st.PoolOf(state.IPPrefix(p.Addr())) == nil) {
					out = append(out, Apart{Node: n, Former: former, Two: two, Calico: p, Internal: a, Other: others[0]})
				}
			}
		}
	}
	return &out
}

// othersIn reports whether another node's Calico address is in the network of this node's address.
func othersIn(st *state.State, n *blocks.Node, p netip.Prefix) bool {
	return slices.ContainsFunc(st.Nodes, func(o blocks.Node) bool {
		return o.Name != n.Name && slices.ContainsFunc(o.Addresses, func(q netip.Prefix) bool { return p.Masked().Contains(q.Addr()) })
	})
}

// ofPods describes a Calico address in the pods' network or of the loopback device, and returns the
// node's InternalIP. It returns "" for any other address. An address in a pool is not sufficient,
// because a pool may contain the nodes' network. Other nodes' addresses are then in the pool, too, or
// differ from their InternalIPs.
func ofPods(st *state.State, n *blocks.Node, p netip.Prefix) (how string, internal netip.Addr) {
	inPool := func(a netip.Addr) *state.Pool {
		i := slices.IndexFunc(st.Pools, func(q *state.Pool) bool { return q.HandsOut() && q.CIDR.Contains(a) })
		if i < 0 {
			return nil
		}
		return st.Pools[i]
	}
	i := slices.IndexFunc(n.InternalIPs, func(a netip.Addr) bool { return blocks.FamilyOf(a) == blocks.FamilyOf(p.Addr()) })
	if i >= 0 && p.Addr().IsLoopback() && len(st.Nodes) > 1 {
		return "a loopback address, to which no other node has a route", n.InternalIPs[i]
	}
	if i < 0 || inPool(n.InternalIPs[i]) != nil || n.AssignsPods(n.InternalIPs[i]) {
		return "", internal
	}
	internal = n.InternalIPs[i]
	pool := inPool(p.Addr())
	switch {
	case slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Addr == p.Addr() }):
		return "its own tunnel's", internal
	case n.AssignsPods(p.Addr()):
		return "in its podCIDR, as a bridge for pods is", internal
	case pool != nil && !othersIn(st, n, p) && slices.ContainsFunc(st.Nodes, func(o blocks.Node) bool {
		return slices.ContainsFunc(o.Addresses, func(q netip.Prefix) bool { return slices.Contains(o.InternalIPs, q.Addr()) && inPool(q.Addr()) == nil })
	}):
		return "in pool " + pool.Name, internal
	}
	return "", internal
}

// sharedNetwork returns an InternalIP of a node that lies in the network of every other node's
// Calico address, and these nodes. On each of them, Calico address and InternalIP are equal.
func sharedNetwork(st *state.State, n *blocks.Node, f blocks.Family) (at netip.Addr, others []*blocks.Node) {
	for i := range st.Nodes {
		o := &st.Nodes[i]
		for _, q := range o.Addresses {
			if o.Name == n.Name || blocks.FamilyOf(q.Addr()) != f {
				continue
			}
			j := slices.IndexFunc(n.InternalIPs, func(a netip.Addr) bool { return q.Masked().Contains(a) })
			if j < 0 || !slices.Contains(o.InternalIPs, q.Addr()) {
				return netip.Addr{}, nil
			}
			at, others = n.InternalIPs[j], append(others, o)
		}
	}
	return at, others
}
