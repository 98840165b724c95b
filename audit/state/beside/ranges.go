package beside

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Overlapping returns the nodes with a podCIDR that overlaps that of an older node, and describes
// both. host-local gives pods of the two nodes the same addresses
// (kubernetes-sigs/cloud-provider-azure#4556, kubernetes/kubernetes#70957).
func Overlapping(st *state.State) (nodes, texts blocks.Names) {
	type claim struct {
		netip.Prefix
		*blocks.Node
	}
	var all []claim
	for _, h := range st.NodeStates { // by name
		if h.Node != nil && assigns(h) {
			for _, p := range h.Node.PodCIDRs {
				all = append(all, claim{p, h.Node})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b claim) int { return a.Prefix.Compare(b.Prefix) })
	var wide claim // the last one that contains or precedes those after it
	for _, c := range all {
		late, early := c, wide
		if wide.Node == nil || !wide.Overlaps(c.Prefix) {
			wide = c
			continue
		} else if early.Created.After(late.Created) {
			late, early = early, late
		}
		if !slices.Contains(nodes, late.Name) {
			nodes = append(nodes, late.Name)
			texts = append(texts, fmt.Sprintf("%s %s, which overlaps %s of %s", late.Name, late.Prefix, early.Prefix, early.Name))
		}
	}
	return nodes, texts
}

// TunnelsInside returns the nodes with a tunnel address that another IPAM assigns to pods, too, and
// describes the addresses. With USE_POD_CIDR, calico-node takes the first address of its node's
// podCIDR, which host-local leaves out (libcalico-go lib/backend/k8s/resources,
// getStaticTunnelAddress).
func TunnelsInside(st *state.State) (nodes, texts blocks.Names) {
	for i := range st.Nodes {
		n := &st.Nodes[i]
		for _, t := range n.Tunnels {
			if slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return t.Addr == p.Addr().Next() }) {
				continue
			}
			j := slices.IndexFunc(st.NodeStates, func(h *state.NodeState) bool { return assigns(h) && h.Node.AssignsPods(t.Addr) })
			if j >= 0 && !slices.Contains(nodes, n.Name) {
				nodes = append(nodes, n.Name)
				texts = append(texts, fmt.Sprintf("%s of %s (podCIDR of %s)", t.Addr, n.Name, st.NodeStates[j].Name))
			}
		}
	}
	return nodes, texts
}
