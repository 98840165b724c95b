package state

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// TunnelUse is a tunnel device that has an address, according to its node.
type TunnelUse struct {
	Node *blocks.Node
	// Type is the type of the tunnel, as [blocks.Tunnel] has it.
	Type string
}

// TunnelsAt returns the tunnels that have an address, according to their nodes.
func (st *State) TunnelsAt(a netip.Addr) []TunnelUse { return st.tunnels[a] }

func (st *State) indexTunnels() {
	st.tunnels = map[netip.Addr][]TunnelUse{}
	for i := range st.Nodes {
		for _, t := range st.Nodes[i].Tunnels {
			st.tunnels[t.Addr] = append(st.tunnels[t.Addr], TunnelUse{&st.Nodes[i], t.Type})
		}
	}
	st.tunnelAddrs = slices.SortedFunc(maps.Keys(st.tunnels), netip.Addr.Compare)
}

// Pod returns a pod by namespace and name, or nil.
func (st *State) Pod(namespace, name string) *blocks.Workload {
	i, ok := slices.BinarySearchFunc(st.Workloads, blocks.Key{Namespace: namespace, Name: name}, func(w *blocks.Workload, k blocks.Key) int {
		return w.Key().Compare(k)
	})
	if !ok || name == "" {
		return nil
	}
	return st.Workloads[i]
}

// UnreadPod returns a pod that could not be decoded at all. It may use any address.
func (st *State) UnreadPod() (string, bool) { return st.unreadPod, st.unreadPod != "" }

// MayUse returns a pod that was decoded in part and names an address of a CIDR, or nil.
func (st *State) MayUse(p netip.Prefix) *blocks.Workload {
	for _, w := range st.partial {
		for a := range w.Addresses {
			if p.Contains(a) && w.MayBeLive() {
				return w
			}
		}
	}
	return nil
}

// Unreadable is [blocks.Snapshot.Unreadable].
func (st *State) Unreadable(r blocks.Resource) []blocks.Gap { return st.unreadable[r] }

// indexUnread indexes the objects that could not be decoded. It does so once, because verdicts on
// each address ask for them, and anyone who may write pods can cause many gaps.
func (st *State) indexUnread() {
	st.unreadable = map[blocks.Resource][]blocks.Gap{}
	for _, g := range st.Gaps {
		if _, known := st.unreadable[g.Resource]; !known {
			st.unreadable[g.Resource] = st.Snapshot.Unreadable(g.Resource)
		}
	}
	for _, g := range st.Unreadable(blocks.Pods) {
		namespace, name, _ := strings.Cut(g.Name, "/")
		if st.Pod(namespace, name) == nil {
			st.unreadPod = g.Name
			return
		}
	}
}
