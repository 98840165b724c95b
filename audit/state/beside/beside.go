// Package beside finds other networks that run in addition to Calico's.
package beside

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// each calls fn for each running pod of another network's DaemonSet.
func each(st *state.State, fn func(w *blocks.Workload, network string)) {
	for _, w := range st.Workloads {
		if !w.OfDaemonSet() || w.Finished() || w.Node == "" {
			continue
		}
		if network := blocks.OtherNetworks[blocks.NetworkPrefix(w.Controller.Name)]; network != "" {
			fn(w, network)
		}
	}
}

// Agents returns, by node, the running pod of another network's DaemonSet.
func Agents(st *state.State) map[string]string {
	out := map[string]string{}
	each(st, func(w *blocks.Workload, network string) { out[w.Node] = fmt.Sprintf("%s, %s", w.FullName(), network) })
	return out
}

// Serving returns the other networks of nodes, as DaemonSet and name, if each of the nodes runs one and
// has pods of Calico's IPAM, too (projectcalico/calico#6438).
func Serving(st *state.State, nodes []string) (networks blocks.Names) {
	running := map[string]string{}
	each(st, func(w *blocks.Workload, network string) {
		running[w.Node] = fmt.Sprintf("DaemonSet %s/%s, %s", w.Namespace, w.Controller.Name, network)
	})
	for _, node := range nodes {
		if h := st.NodeState(node); h == nil || running[node] == "" || !slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool { return len(w.StatusIPs) > 0 && st.Assigned(w) }) {
			return nil
		}
		networks = append(networks, running[node])
	}
	slices.Sort(networks)
	return slices.Compact(networks)
}

// Calico returns the pods with unrecorded addresses of their nodes' podCIDRs, and their nodes,
// where another network runs.
func Calico(st *state.State, agents map[string]string) (pods, nodes blocks.Names) {
	st.EachUnrecorded(func(u state.UnrecordedIP) {
		for _, user := range u.Users {
			if h := st.NodeState(user.Node); user.Pod != nil && h != nil && h.Node != nil && h.Node.AssignsPods(u.Addr) && agents[user.Node] != "" {
				pods, nodes = append(pods, user.Pod.FullName()), append(nodes, user.Node)
			}
		}
	})
	slices.Sort(nodes)
	slices.Sort(pods)
	return slices.Compact(pods), slices.Compact(nodes)
}

// Tunnels reports whether blocks record the tunnel address of an existing node. Calico's IPAM then
// serves that node, and its pods have other addresses only because they started with another
// network's configuration.
func Tunnels(st *state.State) (recorded bool) {
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		recorded = recorded || r.Attributes().Tunnel() && !st.Vanished(r.Attributes().Node)
	})
	return recorded
}

// Objects names the objects of Calico's IPAM in a cluster that uses another IPAM.
func Objects(st *state.State) (kinds blocks.Names) {
	add := func(kind string, count int, name func(int) string) {
		names := make(blocks.Names, count)
		for i := range names {
			names[i] = name(i)
		}
		if count > 0 {
			kinds = append(kinds, fmt.Sprintf("%s (%s)", phrase.Plural(count, kind), names))
		}
	}
	add("block", len(st.IPBlocks), func(i int) string { return "ipamblock/" + st.IPBlocks[i].Name })
	add("affinity", len(st.Affinities), func(i int) string { return "blockaffinity/" + st.Affinities[i].Name })
	add("handle", len(st.Handles), func(i int) string { return "ipamhandle/" + st.Handles[i].Name })
	return kinds
}

// WithoutPodCIDR returns the nodes without a podCIDR where pods have waited longer than the grace, if
// other nodes' pods have addresses of their podCIDRs: host-local then has no range on these nodes.
func WithoutPodCIDR(st *state.State) (out blocks.Names) {
	if !slices.ContainsFunc(st.NodeStates, assigns) {
		return nil
	}
	for _, h := range st.NodeStates {
		if n := h.Node; n != nil && len(n.PodCIDRs) == 0 && !n.NoSpec && !st.UnreadableNode(n.Name) &&
			slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool { return w.Waiting() && st.PastGrace(w.Created.Later(w.Started)) }) {
			out = append(out, n.Name)
		}
	}
	return out
}

// FromFlannel returns the nodes of pods with flannel's addresses that are migrating from flannel, and
// the pods whose addresses no block contains. Migrated nodes route to the others' by the blocks that
// the migration claims (kube-controllers pkg/controllers/flannelmigration).
func FromFlannel(st *state.State, pods []*blocks.Workload) (nodes, unrouted blocks.Names) {
	for _, w := range pods {
		h := st.NodeState(w.Node)
		if h == nil || h.Node == nil || !h.Node.FromFlannel() || w.Extras().NoIPAM {
			continue
		}
		nodes = append(nodes, w.Node)
		if slices.ContainsFunc(w.StatusIPs, func(a netip.Addr) bool { return h.Node.AssignsPods(a) && st.CoveringBlock(a) == nil }) {
			unrouted = append(unrouted, w.FullName())
		}
	}
	slices.Sort(nodes)
	slices.Sort(unrouted)
	return slices.Compact(nodes), unrouted
}

// Astray returns the nodes that flannel has registered with an address of the nodes' network that
// is not their InternalIP, such as a virtual IP. It returns none unless flannel has registered more
// nodes with their InternalIPs. Traffic for pods of such a node may go to another machine.
func Astray(st *state.State) (nodes, texts blocks.Names) {
	own := 0
	for i := range st.Nodes {
		n := &st.Nodes[i]
		near := func(a netip.Addr) bool {
			p, err := a.Prefix(24)
			return err == nil && a.Is4() && p.Contains(n.FlannelIP)
		}
		if slices.Contains(n.InternalIPs, n.FlannelIP) {
			own++
		} else if slices.ContainsFunc(n.InternalIPs, near) && !st.UnreadableNode(n.Name) {
			nodes, texts = append(nodes, n.Name), append(texts, n.Name+" with "+n.FlannelIP.String())
		}
	}
	if own < 2 || own <= len(nodes) {
		return nil, nil
	}
	return nodes, texts
}

// Unregistered returns the nodes with pods that flannel has not registered, although it has
// registered others. Other nodes then have no route to their podCIDRs (rancher/rancher#13644).
func Unregistered(st *state.State) (out blocks.Names) {
	others := false
	for i := range st.Nodes {
		n := &st.Nodes[i]
		others = others || n.Flannel
		if h := st.NodeState(n.Name); !n.Flannel && !n.Windows && st.PastGrace(n.Created) && !st.UnreadableNode(n.Name) && h != nil && assigns(h) {
			out = append(out, n.Name)
		}
	}
	if !others {
		return nil
	}
	return out
}

// assigns reports whether a live pod of a node has an address of the node's podCIDRs.
func assigns(h *state.NodeState) bool {
	return h.Node != nil && slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool {
		return w.Live() && slices.ContainsFunc(w.StatusIPs, h.Node.AssignsPods)
	})
}
