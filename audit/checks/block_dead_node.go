package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockDeadNode = audit.Check{
	ID:         "block/dead-node",
	Title:      "a block's host no longer exists",
	Severities: []state.Severity{state.Warning},
	Why:        "No node can use the block, and it cannot be released while it holds an address: one leaked or borrowed address is enough.",
	Confirm:    "kubectl get node NAME: not found. calicoctl ipam show --show-blocks shows how full the block is.",
	Misread:    "Addresses in it may be in use all the same: pods of other nodes may have borrowed them.",
	Remedies:   []remedies.Remedy{remedies.CleanUpNode},
	Never:      "Never delete the block while it holds an address that a live pod uses.",
	Requires:   []blocks.Resource{blocks.Blocks, blocks.Nodes},
	Optional:   slices.Concat(state.ReleaseReads, collector.Reads),
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			host := b.Owner.Node()
			if !st.Vanished(host) || !st.ClaimPastGrace(b) {
				continue
			}
			var lent []string
			for _, br := range st.NodeState(host).Lent {
				if br.Block == b && br.Workload != nil {
					lent = append(lent, fmt.Sprintf("%s by %s on %s", br.Addr, br.Workload.FullName(), br.User))
				}
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{host},
				Message: fmt.Sprintf("node %q no longer exists, but still owns block %s (addresses in use: %d)", host, b.CIDR, b.Used),
				Evidence: state.Evidences("owner", host, "in use", b.Used, "used by live pods elsewhere", lent, "bound pods, which keep Calico's collector waiting", waitingOn(st, []string{host}),
					"created", b.Created, "observed", state.Observed, collector.EvidenceName, collector.OfBlock(st, b).Text("")),
				Root: remedies.Of(st).RootOfHost(host),
			})
		}
	},
}
