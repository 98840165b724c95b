package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityNoBlock = audit.Check{
	ID:         "affinity/no-block",
	Title:      "an affinity whose block does not exist, beyond the grace; at once if a repair by calico-audit left it so",
	Severities: []state.Severity{state.Error},
	Why: "Its node drops traffic to the whole CIDR and may attract it, although no node owns it; and another node may claim the CIDR, " +
		"so that two nodes then say it is theirs.",
	Confirm:  "kubectl get blockaffinities NAME -o yaml, and kubectl get ipamblocks for the same CIDR: not found.",
	Misread:  "For a moment while a node claims a block this is normal: the affinity is written first. Only one that lasts is wrong.",
	Remedies: []remedies.Remedy{remedies.DeleteAffinity},
	Verify:   "On the affinity's node, ip route show type blackhole no longer lists the CIDR.",
	Never:    "Never delete it while the node is claiming the block: look at it twice, and at the block again in between.",
	Requires: []blocks.Resource{blocks.Affinities, blocks.Blocks},
	Optional: []blocks.Resource{blocks.Pools, blocks.Pods, blocks.Nodes, blocks.IPAMConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		eachAffinity(st, func(a *blocks.Affinity, b *state.Block) {
			if affinity.Classify(a, state.BareOrNil(b)) != affinity.NoBlock || !st.Lasts(a) {
				return
			}
			if st.BlockMayCover(a.CIDR) {
				f.SkipPartial("not evaluated for %s of %s: a block that cannot be read may be its own", a.CIDR, phrase.Owner(a.Owner))
				return
			}
			x := affinityFinding(st, a, state.Error, fmt.Sprintf("affinity of %s to %s exists, its IPAMBlock does not", phrase.Owner(a.Owner), a.CIDR))
			x.Absence, x.Remedies, x.Root = true, []remedies.Remedy{remedies.DeleteAffinity.Unless(st.DeleteAffinityBar(a, b))}, remedies.Of(st).RootOfHost(a.Owner.Node())
			begunHere(&x, state.HalfDone(a))
			f.Add(x)
		})
	},
}
