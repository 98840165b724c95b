package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityNoBlock = audit.Check{
	ID:         "affinity/no-block",
	Title:      "an affinity's block does not exist, beyond the grace period; immediately if calico-audit left it so",
	Severities: []state.Severity{state.Error},
	Why:        "The affinity's node drops traffic to the whole CIDR and may attract it, although no node owns it. Another node can claim the CIDR too, and then two nodes hold an affinity to it.",
	Confirm:    "kubectl get blockaffinities NAME -o yaml shows the CIDR; kubectl get ipamblocks has no block of that CIDR.",
	Misread:    "This is normal for a moment while a node claims a block, because Calico writes the affinity first. Only an affinity that stays without a block is wrong.",
	Remedies:   []remedies.Remedy{remedies.DeleteAffinity},
	Verify:     "On the affinity's node, ip route show type blackhole no longer lists the CIDR.",
	Never:      "Never delete it while the node is claiming the block: look at the affinity twice, and check the block again in between.",
	Requires:   []blocks.Resource{blocks.Affinities, blocks.Blocks},
	Optional:   []blocks.Resource{blocks.Pools, blocks.Pods, blocks.Nodes, blocks.IPAMConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		eachAffinity(st, func(a *blocks.Affinity, b *state.Block) {
			if affinity.Classify(a, state.BareOrNil(b)) != affinity.NoBlock || !st.Lasts(a) {
				return
			}
			if st.BlockMayCover(a.CIDR) {
				f.SkipPartial("not evaluated for %s of %s: its block may be among those that cannot be read", a.CIDR, a.Owner)
				return
			}
			x := affinityFinding(st, a, state.Error, fmt.Sprintf("affinity of %s to %s exists, its IPAMBlock does not", a.Owner, a.CIDR))
			x.Absence, x.Remedies, x.Root = true, remedies.Of(st).AffinityRemedies(a, b), remedies.Of(st).RootOfHost(a.Owner.Node())
			begunHere(st, &x, blocks.Affinities, a.Name, state.HalfDone(a))
			f.Add(x)
		})
	},
}
