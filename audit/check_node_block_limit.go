package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "node/block-limit",
		Title:    "a node has as many blocks as it may",
		Severity: "warning, or error if they are full",
		Why: "At the limit (maxBlocksPerHost; 20 unless set) a node claims no further block and, unlike in a pool without blocks, borrows nothing either: " +
			"its next pod gets no address once its blocks are full.",
		Confirm: "kubectl get ipamconfigs.crd.projectcalico.org default -o yaml shows maxBlocksPerHost; calicoctl ipam show --show-blocks shows the node's blocks.",
		Misread: "A node at its limit is more often full of leaked addresses than of pods: see how many pods it runs.",
		Fix:     "Look for leaked addresses first. If the pods are real, raise maxBlocksPerHost (which needs strict affinity) or run fewer pods on the node.",
		Never:   "Never raise the limit to get rid of the alert without knowing what fills the blocks.",
		Needs:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.IPAMConfigs, blocks.Nodes, blocks.Reservations},
		Run: func(st *State, f *Findings) {
			limit := st.IPAM.BlockLimit()
			for _, h := range st.Hosts {
				if h.Node == nil {
					continue
				}
				for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
					n := &Need{Host: h, Family: family, Pools: st.WorkloadPools(h.Node, family)}
					have := st.limitCount(n)
					if have < limit {
						continue
					}
					unused := 0
					var bs []*Block
					for _, b := range h.Blocks {
						if b.Family() == family && b.Usable() && inPools(b, n.Pools) {
							bs = append(bs, b)
							unused += b.unused(st.reserved)
						}
					}
					sev, room := Warning, fmt.Sprintf("%s left in them", plural(unused, "address"))
					if unused == 0 {
						sev, room = Error, "they are full: its next pod gets no address"
					}
					f.Add(Finding{
						Severity: sev, Subject: nodeSubject(h.Name), Pools: poolsOf(n.Pools...),
						Message: fmt.Sprintf("node %s has %d %s blocks of %d allowed; %s", h.Name, have, family, limit, room),
						Evidence: Evidences("limit", limitText(st), "blocks", list(cidrs(bs)), "unused addresses", fmt.Sprint(unused),
							"pods on the node", fmt.Sprint(len(h.Workloads))),
						Fix: Fix{"look", "calico-audit report -o wide --node " + h.Name},
					})
				}
			}
		},
	})
}

func limitText(st *State) string {
	if st.IPAM.MaxBlocksPerHost > 0 {
		return fmt.Sprintf("%d (maxBlocksPerHost)", st.IPAM.MaxBlocksPerHost)
	}
	return fmt.Sprintf("%d (Calico's default)", blocks.DefaultMaxBlocks)
}
