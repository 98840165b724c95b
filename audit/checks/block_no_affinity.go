package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockNoAffinity = audit.Check{
	ID:         "block/no-affinity",
	Title:      "a block names a host, and no BlockAffinity of that host to the block exists",
	Severities: []state.Severity{state.Error},
	Why:        "BIRD makes routes from affinities, so the block has no route and is not advertised, although its owner uses it. Calico cannot release such a block either: its call does nothing and reports success.",
	Confirm:    "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr shows no row for the block.",
	Remedies:   []remedies.Remedy{remedies.RestoreAffinity},
	Never:      "Never delete the block because its affinity is missing: it may be full of live pods.",
	Requires:   []blocks.Resource{blocks.Blocks, blocks.Affinities},
	Optional: []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Pools, blocks.IPAMConfigs, blocks.Namespaces, blocks.Reservations, blocks.ClusterInfos,
		blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			host := b.Owner.Node()
			if host == "" || b.SoftDeleted || !st.ClaimPastGrace(b) || st.ClaimedBy(b, host) {
				continue
			}
			if st.AffinityMayExist(b.CIDR, host) {
				f.SkipPartial("not evaluated for %s: its affinity may be among those that cannot be read", b.CIDR)
				continue
			}
			var others []string
			for _, a := range st.AffinitiesOf(b.CIDR) {
				others = append(others, a.Owner.String())
			}
			var ways []remedies.Remedy
			if !st.NodesRead() || !st.Vanished(host) { // a deleted node's leftovers are cleaned up first
				ways = []remedies.Remedy{remedies.RestoreAffinity.Unless(st.RestoreAffinityBar(b))}
			}
			f.Add(audit.Finding{
				Severity: state.Error, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{host}, Absence: true,
				Message: fmt.Sprintf("block %s belongs to %s, which has no affinity to it", b.CIDR, host),
				Evidence: state.Evidences("owner", host, "in use", b.Used, "affinities of others", others,
					"created", b.Created, "observed", state.Observed),
				Remedies: ways, Root: remedies.Of(st).RootOfHost(host),
			})
		}
	},
}
