package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityStuck = audit.Check{
	ID:         "affinity/stuck",
	Title:      "an affinity to its own host's block stays pending or pendingDeletion beyond the grace period; immediately if calico-audit left it so",
	Severities: []state.Severity{state.Warning},
	Why:        "A claim or a release stopped half-way. While the affinity is pendingDeletion, BIRD does not advertise the block. The node's next assignment confirms the affinity.",
	Confirm:    "kubectl get blockaffinities -o custom-columns=NAME:.metadata.name,STATE:.spec.state",
	Remedies: []remedies.Remedy{
		remedies.ByHand("start a pod on the node: Calico then confirms the affinity", "the affinity agrees with its block", "none"),
		remedies.ReleaseBlock,
	},
	Never:    "Never delete the affinity alone while its block exists: otherwise a block in use has no affinity.",
	Requires: []blocks.Resource{blocks.Affinities, blocks.Blocks},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		eachAffinity(st, func(a *blocks.Affinity, b *state.Block) {
			if affinity.Classify(a, state.BareOrNil(b)) != affinity.Unconfirmed || !st.Lasts(a) {
				return
			}
			x := affinityFinding(st, a, state.Warning, fmt.Sprintf("affinity of %s to its block %s stays %s", a.Owner, a.CIDR, a.Effective()))
			switch {
			case !state.HalfDone(a) || b.Used > 0:
			case b.SoftDeleted:
				x.Remedies = []remedies.Remedy{remedies.FinishDelete.Unless(st.FinishBlockBar(b))}
			default:
				x.Remedies = []remedies.Remedy{remedies.DeleteAffinity.Unless(b.Releasability.Bar)}
			}
			begunHere(st, &x, blocks.Affinities, a.Name, state.HalfDone(a))
			f.Add(x)
		})
	},
}
