package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
)

var podWaiting = audit.Check{
	ID:         "pod/waiting",
	Title:      "a pod has had no address for longer than the grace period, and no lack of blocks or addresses explains it",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error if no retry can succeed; else warning",
	Why:        "The pod stays in ContainerCreating although addresses are left. The message names the causes that the objects show, the likeliest first: the requested address is held, Calico rejects the requested pools or addresses, all pools of a family assign manually, calico-node or the kubelet does not work on the node, or the CNI configuration names a disabled pool.",
	Confirm:    "kubectl describe pod shows the event FailedCreatePodSandBox with the error of the CNI plugin. A report quotes it if it may list Events.",
	Misread:    "A pod also waits without an address while its volumes are not attached, which Calico has no part in. The CNI configuration is a file on each node and is not read.",
	Remedies:   remedies.Waiting,
	Verify:     "kubectl get pod -o wide shows the pod's address.",
	Never:      "Never release the address that a pod asks for before the machine of its owner is known to be off.",
	Requires:   waiting.Reads,
	Optional: []blocks.Resource{blocks.IPAMConfigs, blocks.Affinities, blocks.Reservations, blocks.ClusterInfos, blocks.Handles, blocks.VMs, blocks.VMInstances,
		blocks.WhereaboutsPools, blocks.NetworkAttachments, blocks.NodeSlicePools},
	Run: func(st *state.State, f *audit.Findings) {
		pods := waiting.Of(st)
		if pods.Unread != "" {
			f.Inconclusive("not evaluated: %s", pods.Unread)
		}
		for _, p := range pods.All {
			switch {
			case !p.Lasting:
			case p.Unread != "":
				f.SkipPartial("not evaluated for pod %s: %s", p.FullName(), p.Unread)
			default:
				f.Add(waitingFinding(st, p))
			}
		}
	},
}

func waitingFinding(st *state.State, p *waiting.Pod) audit.Finding {
	x := audit.Finding{
		Severity: state.Warning, Subject: state.PodSubject(p.Workload), Nodes: []string{p.Node}, Absence: true,
		Root: remedies.WaitingRoot(p.Causes[0]), Remedies: remedies.Of(st).WaitingRemedies(p),
	}
	if p.Final() {
		x.Severity = state.Error
	}
	x.Message = fmt.Sprintf("pod %s waits for an address on %s: %s", p.FullName(), p.Node, p.Text())
	var asks []string
	for _, a := range p.Extras().StaticIPs {
		asks = append(asks, a.String())
		x.Pools = append(x.Pools, state.PoolsOf(st.PoolOf(state.IPPrefix(a)))...)
	}
	for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		names := st.RequestedNames(p.Workload, family)
		asks = append(asks, names...)
		for _, name := range names {
			x.Pools = append(x.Pools, state.PoolsOf(st.PoolByNameOrCIDR(name))...)
		}
	}
	slices.Sort(x.Pools)
	x.Pools = slices.Compact(x.Pools)
	x.Evidence = state.Evidences("waits since", p.Since, "asks for", asks, "kubelet's event", p.Quote(), "observed", state.Observed)
	return x
}
