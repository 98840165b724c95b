package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityNotOwner = audit.Check{
	ID:         "affinity/not-owner",
	Title:      "an affinity's block belongs to another host, or to no host",
	Severities: []state.Severity{state.Critical, state.Error},
	Graded:     "critical if the affinity is not pending and BIRD programs the pool's routes; else error",
	Why:        "The affinity's node drops traffic to the whole block and may attract it, but the pods run on the block's owner. Some or all of their traffic is lost.",
	Confirm:    "On the affinity's node, ip route show type blackhole lists the CIDR, but the block's affinity field names another node.",
	Misread:    "If two affinities claim the same block, their age does not decide which is right. The block's own affinity field does.",
	Remedies:   []remedies.Remedy{remedies.DeleteAffinity},
	Verify:     "On the affinity's node, ip route show type blackhole no longer lists the CIDR, and pods there reach the pods of the owner.",
	Never:      "Never delete the affinity of the node that the block names: that cuts off its pods.",
	Requires:   []blocks.Resource{blocks.Affinities, blocks.Blocks, blocks.Pools, blocks.FelixConfigs},
	Optional:   []blocks.Resource{blocks.Nodes, blocks.BGPConfigs, blocks.BGPPeers, blocks.ClusterInfos},
	Run: func(st *state.State, f *audit.Findings) {
		eachAffinity(st, func(a *blocks.Affinity, b *state.Block) {
			if affinity.Classify(a, state.BareOrNil(b)) != affinity.NotOwner {
				return
			}
			if st.ClaimInFlight(a, b) {
				return
			}
			if st.BlockMayCover(a.CIDR) {
				f.SkipPartial("not evaluated for %s of %s: its block may be among those that cannot be read", a.CIDR, a.Owner.Node())
				return
			}
			sev := state.Error
			var pool *blocks.Pool
			if p := st.PoolOf(a.CIDR); p != nil {
				pool = p.Pool
			}
			stale := st.Routing.Stale(a, b.Block, pool)
			effect := stale.Text
			switch {
			case st.PoolMayCover(a.CIDR):
				effect = "not known: its pool may be among those that cannot be read"
			case stale.Drops && st.NodesRead() && !st.UnreadableNode(a.Owner.Node()):
				sev = state.Critical
			}
			x := affinityFinding(st, a, sev, fmt.Sprintf("%s has an affinity to block %s, which belongs to %s", a.Owner, a.CIDR, b.Owner))
			x.Evidence = append(x.Evidence, state.Evidences("effect", effect)...)
			x.Remedies = remedies.Of(st).AffinityRemedies(a, b)
			begunHere(st, &x, blocks.Affinities, a.Name, state.HalfDone(a))
			x.Absence = true // it depends on two objects that were read one after the other
			f.Add(x)
		})
	},
}
