package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/finished"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipFinishedPod = audit.Check{
	ID:         "ip/finished-pod",
	Title:      "allocations belong to pods that finished longer than the grace period ago",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "info; warning while the pool is out of or low on blocks or addresses, or while the node is at its block limit",
	Why:        "A pod that has Succeeded or Failed needs no address. Its address is normally released when its containers end; if that failed, pods of finished Jobs and evicted pods fill the node's blocks, and its next pods get no address.",
	Confirm:    "kubectl get pods --all-namespaces --field-selector=spec.nodeName=NODE,status.phase=Succeeded, and the same with Failed, shows the pods; calicoctl ipam show --ip=ADDRESS shows that a block still records their addresses.",
	Misread:    "These addresses are not leaked: the pods that they are recorded for exist. Calico's collector never frees the address of a pod whose status has none, such as an evicted pod.",
	Remedies:   []remedies.Remedy{remedies.DeleteFinished},
	Verify:     "The block no longer records the addresses, at the latest after Calico's collector or --leaked-ips has freed them.",
	Never:      "Never release the addresses with \"calicoctl ipam release --ip\", which checks neither handle nor sequence number.",
	Requires:   []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional:   slices.Concat(state.ReleaseReads, collector.Reads),
	Run: func(st *state.State, f *audit.Findings) {
		if name, unread := st.UnreadPod(); unread {
			f.SkipPartial("not evaluated for pod %s, which could not be read", name)
		}
		for _, a := range finished.Of(st) {
			sev, why := state.Info, shortOf(st, a)
			if why != "" {
				sev = state.Warning
			}
			first := slices.MinFunc(a.Pods, func(x, y *blocks.Workload) int { return x.EndedAt().Std().Compare(y.EndedAt().Std()) })
			s := state.NodeSubject(a.Node)
			if a.Pool != nil {
				s.CIDR = a.Pool.CIDR.String()
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: s, Pools: state.PoolsOf(a.Pool),
				Message: fmt.Sprintf("finished pods hold %d of the %d addresses of %s in %s", len(a.Refs), a.Of, a.Node, poolOrNone(a.Pool)),
				Evidence: state.Evidences("finished pods", fmt.Sprintf("%d: %s", len(a.Pods), phrase.FullNames(a.Pods)), "finished first", first.EndedAt(),
					"needed because", why, collector.EvidenceName, collector.OfAddresses(st, a.Refs)),
				Remedies: []remedies.Remedy{remedies.DeleteFinishedOf(a.Node, a.Pods)},
			})
		}
	},
}

func poolOrNone(p *state.Pool) string {
	if p == nil {
		return "blocks without a pool"
	}
	return "pool " + p.Name
}

// shortOf explains why the addresses are needed: the pool is short, or the node is at its block
// limit. It returns "" if neither is known.
func shortOf(st *state.State, a *finished.Addresses) string {
	p := a.Pool
	switch {
	case p == nil || !p.ReleasableKnown:
	case p.OutOfBlocks():
		return "the pool has no block left to claim"
	case p.Addrs.Available.IsZero() && p.Automatic && !p.Disabled:
		return "the pool has no address left"
	case p.LowOnBlocks():
		return "the pool is low on blocks"
	case p.LowOnAddresses():
		return "the pool is low on addresses"
	}
	if h := st.NodeState(a.Node); p != nil && h != nil && h.Node != nil && atLimit(st, h, p.Family()) {
		return a.Node + " has as many blocks as it may have"
	}
	return ""
}
