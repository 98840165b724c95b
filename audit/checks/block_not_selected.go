package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockNotSelected = audit.Check{
	ID:         "block/not-selected",
	Title:      "a block with its own node's addresses lies in a pool that no longer selects the node",
	Severities: []state.Severity{state.Info},
	Why:        "The node's labels or the pool's nodeSelector have changed. Running pods keep their addresses, but their replacements get addresses of other pools. The node releases the block with its next assignment after the last address is released.",
	Confirm:    "kubectl get nodes --show-labels; kubectl get ippools -o custom-columns=NAME:.metadata.name,NODES:.spec.nodeSelector",
	Misread:    "Calico ignores selectors for pods that ask for a pool or an address by annotation, so their blocks may lie in any pool.",
	Remedies: []remedies.Remedy{
		remedies.Restart("restart the node's pods that still use the pool", "they get addresses of a pool that selects the node, which then releases the block"),
		remedies.ByHand("if the node should use the pool, correct its labels or the pool's nodeSelector", "the node assigns from its block again", "a selector takes effect immediately on all nodes"),
	},
	Never:    "Never delete the block: its pods still use the addresses.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pools, blocks.Nodes, blocks.Pods, blocks.Namespaces},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			h, p := st.NodeState(b.Owner.Node()), b.Pool
			if h == nil || h.Node == nil || p == nil || p.Disabled || !p.Automatic || p.NodeSelection.Err != nil || p.SelectsNode(h.Node) {
				continue
			}
			users := automaticUsers(st, b, h.Name, p)
			if len(users) == 0 {
				continue
			}
			if st.UnreadableNode(h.Name) {
				f.SkipPartial("not evaluated for %s: node %s cannot be read", b.CIDR, h.Name)
				continue
			}
			f.Add(audit.Finding{
				Severity: state.Info, Subject: state.BlockSubject(b), Pools: state.PoolsOf(p), Nodes: []string{h.Name},
				Message: fmt.Sprintf("block %s of node %s lies in pool %s, which no longer selects the node (its addresses in use: %d)",
					b.CIDR, h.Name, p.Name, len(users)),
				Evidence: state.Evidences("pool", p.Name, "nodeSelector", p.NodeSelector, "used by", users),
				Remedies: f.Check.Remedies,
			})
		}
	},
}

// automaticUsers names the live pods and tunnels of a node with addresses of a block. It omits pods
// that ask for a pool or an address, because Calico ignores selectors for those.
func automaticUsers(st *state.State, b *state.Block, node string, p *state.Pool) (out blocks.Names) {
	for i, o := range b.Ordinals {
		if o == blocks.Free {
			continue
		}
		for _, u := range st.LiveUses(b.Address(i), st.NamedBy(b.Address(i))) {
			if u.Node != node {
				continue
			}
			if u.Pod == nil {
				out = append(out, u.String())
			} else if _, asks := st.RequestedPools(u.Pod, p.Family()); !asks && !u.Pod.StaticAddress {
				out = append(out, u.Pod.FullName())
			}
			break // ip/duplicate reports a second user
		}
	}
	return out
}
