// Package traffic finds pools whose settings do not carry their pods' traffic.
package traffic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Trouble describes the settings of a pool that do not carry its pods' traffic.
type Trouble struct {
	// Kinds are the settings, the gravest first.
	Kinds []Kind
	Text  string
	// Nodes are the nodes without routes to each other's pods; nil if there are routes.
	Nodes []string
}

// Kind is the setting.
type Kind int

// The settings.
const (
	// NoRoutes: the pool has no encapsulation, and no calico-node runs BIRD.
	NoRoutes Kind = iota
	// NoNAT: the pool's pods reach nothing outside the cluster, unlike those of the other family.
	NoNAT
	// HostSubnets: CrossSubnet, and the address of each node is a subnet of its own.
	HostSubnets
)

// Of returns the trouble with a pool; nil if there is none.
func Of(st *state.State, p *state.Pool) *Trouble {
	if !p.ServesWorkloads() || p.Addrs.InUse.IsZero() {
		return nil
	}
	t, texts := &Trouble{Nodes: withoutRoutes(st, p)}, []string{}
	add := func(k Kind, format string, args ...any) {
		t.Kinds, texts = append(t.Kinds, k), append(texts, fmt.Sprintf(format, args...))
	}
	if len(t.Nodes) > 0 {
		add(NoRoutes, "has no encapsulation, and no calico-node runs BIRD: on %s, no route leads to the pool's pods on other nodes", phrase.Some(t.Nodes))
	}
	if q := translated(st, p); q != nil {
		add(NoNAT, "has no outgoing NAT (natOutgoing), unlike pool %s: its pods' private %s addresses get no answer from outside the cluster", q.Name, p.Family())
	}
	if n := hostSubnets(st, p); n > 0 {
		add(HostSubnets, "encapsulates between subnets only (CrossSubnet), and all %d nodes record an address without a subnet (/%d): all traffic between nodes is encapsulated", n, p.CIDR.Addr().BitLen())
	}
	if len(texts) == 0 {
		return nil
	}
	t.Text = "pool " + p.Name + " " + strings.Join(texts, "; it ")
	return t
}

// withoutRoutes returns the nodes that have blocks of an unencapsulated pool in use while calico-node's
// readiness probes show that BIRD runs on none of them. Felix programs routes to other nodes only for
// encapsulated pools, unless the FelixConfiguration says otherwise (projectcalico/calico#6310).
func withoutRoutes(st *state.State, p *state.Pool) (nodes []string) {
	ipip := p.IPIP != "" && p.IPIP != blocks.EncapNever && p.Family() == blocks.IPv4
	if ipip || len(st.BGPPeers) > 0 || len(st.Unreadable(blocks.BGPPeers)) > 0 || !st.Routing.ByBIRD(p.Pool) {
		return nil
	}
	if g := st.FirstMissing([]blocks.Resource{blocks.BGPPeers, blocks.FelixConfigs}); g != nil {
		return nil
	}
	agents := map[string]bool{} // by node, whether BIRD is off
	for _, w := range st.Workloads {
		if w.HostNetwork && w.OfDaemonSet() && strings.HasPrefix(w.Controller.Name, "calico-node") {
			if agents[w.Node] = w.FelixOnly; !w.FelixOnly {
				return nil
			}
		}
	}
	for _, b := range p.Blocks {
		if node := b.Owner.Node(); b.Used > 0 && agents[node] && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	if slices.Sort(nodes); len(nodes) < 2 {
		return nil
	}
	return nodes
}

// translated returns a pool of the other family that serves the nodes of a pool and translates their
// addresses, although the pool itself does not: its addresses are private, and no BGP peer outside the
// cluster learns the way to them (projectcalico/calico#7183).
func translated(st *state.State, p *state.Pool) *state.Pool {
	if p.NATOutgoing || !p.Automatic || !p.CIDR.Addr().IsPrivate() || len(st.BGPPeers) > 0 || st.FirstMissing([]blocks.Resource{blocks.BGPPeers}) != nil || len(st.Unreadable(blocks.BGPPeers)) > 0 {
		return nil
	}
	i := slices.IndexFunc(st.Pools, func(q *state.Pool) bool {
		return q.Family() != p.Family() && q.NATOutgoing && q.Automatic && q.ServesWorkloads() && !q.Addrs.InUse.IsZero() && q.SelectsNodesOf(p)
	})
	if i < 0 {
		return nil
	}
	return st.Pools[i]
}

// hostSubnets returns the number of nodes that a CrossSubnet pool selects, if the recorded address of
// each is a subnet of its own: calico-node was given an address without the length of its subnet
// (projectcalico/calico#2375). It returns 0 if any has a subnet.
func hostSubnets(st *state.State, p *state.Pool) (n int) {
	if p.VXLAN != blocks.EncapCrossSubnet && (p.IPIP != blocks.EncapCrossSubnet || p.Family() != blocks.IPv4) || len(st.Unreadable(blocks.Nodes)) > 0 {
		return 0
	}
	for _, h := range st.SelectedBy(p) {
		for _, a := range h.Node.Addresses {
			switch {
			case blocks.FamilyOf(a.Addr()) != p.Family():
			case !a.IsSingleIP():
				return 0
			default:
				n++
			}
		}
	}
	if n < 2 {
		return 0
	}
	return n
}
