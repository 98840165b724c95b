package audit

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "node/block-limit",
		Title:    "a node has as many blocks as it may",
		Severity: "warning, or error if they are full",
		Why: "At the limit (maxBlocksPerHost; 20 unless set) a node claims no further block and, unlike in a pool without blocks, borrows nothing either: " +
			"its next pod gets no address once its blocks are full.",
		Confirm: "calicoctl ipam show --show-configuration shows maxBlocksPerHost; calicoctl ipam show --show-blocks shows the node's blocks.",
		Misread: "A node at its limit is more often full of leaked addresses than of pods: see how many pods it runs.",
		Fix:     "Look for leaked addresses first. If the pods are real, raise maxBlocksPerHost (which needs strict affinity) or run fewer pods on the node.",
		Never:   "Never raise the limit to get rid of the alert without knowing what fills the blocks.",
		Needs:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.IPAMConfigs, blocks.Nodes, blocks.Reservations, blocks.Affinities},
		Run: func(st *State, f *Findings) {
			for _, h := range st.Hosts {
				if h.Node != nil {
					blockLimitFinding(st, h, f)
				}
			}
		},
	})
}

// blockLimitFinding adds one finding for a host that is at the limit in any
// family; the worse family gives the severity.
func blockLimitFinding(st *State, h *Host, f *Findings) {
	limit := st.IPAM.BlockLimit()
	x := Finding{Subject: nodeSubject(h.Name), Fix: Fix{"look", "calico-audit report -o wide --node " + arg(h.Name)}}
	var texts []string
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
		sev, room := Warning, plural(unused, "address")+" left in them"
		switch {
		case unused > 0:
		case st.healsItself(n):
			room = "they are full; one more affinity has no block yet, which its next assignment makes"
		default:
			sev, room = Error, "they are full: its next pod gets no address"
		}
		x.Severity = max(x.Severity, sev)
		x.Pools = append(x.Pools, poolsOf(n.Pools...)...)
		texts = append(texts, fmt.Sprintf("has as many %s blocks as it may (%d of %d); %s", family, have, limit, room))
		x.Evidence = append(x.Evidence, Evidences("limit", limitText(st), family.String()+" blocks", list(cidrs(bs)),
			family.String()+" unused addresses", fmt.Sprint(unused))...)
	}
	if len(texts) > 0 {
		x.Message = fmt.Sprintf("node %s %s", h.Name, strings.Join(texts, "; it "))
		x.Evidence = append(x.Evidence, Evidences("pods on the node", fmt.Sprint(len(h.Workloads)))...)
		f.Add(x)
	}
}

func limitText(st *State) string {
	if st.IPAM.MaxBlocksPerHost > 0 {
		return fmt.Sprintf("%d (maxBlocksPerHost)", st.IPAM.MaxBlocksPerHost)
	}
	return fmt.Sprintf("%d (Calico's default)", blocks.DefaultMaxBlocks)
}
