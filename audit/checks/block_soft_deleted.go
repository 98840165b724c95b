package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockSoftDeleted = audit.Check{
	ID:         "block/soft-deleted",
	Title:      "a block, affinity or handle stays marked deleted beyond the grace period; immediately if calico-audit left it so",
	Severities: []state.Severity{state.Warning},
	Why: "On Kubernetes, Calico deletes in two steps: it marks the object, then deletes it. This deletion stopped after the mark. " +
		"The object blocks the next claim of its CIDR, and Calico's tools no longer show it.",
	Confirm:  "kubectl get with -o yaml shows spec.deleted: true (for an affinity of the older API group, the string \"true\").",
	Remedies: []remedies.Remedy{remedies.FinishDelete},
	Never:    "Never remove the mark: some component already treats the object as deleted.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles},
	Optional: []blocks.Resource{blocks.Pods, blocks.Nodes, blocks.IPAMConfigs, blocks.ClusterInfos},
	Run: func(st *state.State, f *audit.Findings) {
		add := func(r blocks.Resource, s state.Subject, what string, m blocks.Meta, pool *state.Pool, node string, stands state.Bar) {
			if !m.ByUs && !st.OldEnough(m) {
				return
			}
			x := audit.Finding{
				Severity: state.Warning, Subject: s, Pools: state.PoolsOf(pool), Nodes: []string{node},
				Message:  fmt.Sprintf("%s is marked deleted and was never removed", what),
				Evidence: state.Evidences("created", m.Created, "last written", m.Written),
				Remedies: []remedies.Remedy{remedies.FinishDelete.Unless(stands)},
			}
			begunHere(st, &x, r, m.Name, m.ByUs)
			f.Add(x)
		}
		for _, b := range st.IPBlocks {
			if b.SoftDeleted {
				add(blocks.Blocks, state.BlockSubject(b), fmt.Sprintf("block %s of %s", b.CIDR, b.Owner), b.Meta, b.Pool, b.Owner.Node(), st.FinishBlockBar(b))
			}
		}
		for i := range st.Affinities {
			if a := &st.Affinities[i]; a.SoftDeleted {
				add(blocks.Affinities, state.AffinitySubject(a), fmt.Sprintf("affinity of %s to %s", a.Owner, a.CIDR), a.Meta, st.PoolOf(a.CIDR), a.Owner.Node(), st.FinishAffinityBar(a, st.BlockOf(a.CIDR)))
			}
		}
		for _, h := range st.Handles {
			if h.SoftDeleted {
				add(blocks.Handles, state.HandleSubject(h.ID), "handle "+h.ID, h.Meta, nil, "", handles.FinishBar(st, h))
			}
		}
	},
}
