package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipLeaked = audit.Check{
	ID:         "ip/leaked",
	Title:      "an allocation's named owner (pod, tunnel, VM) no longer exists, as far as was observed",
	Severities: []state.Severity{state.Warning},
	Why:        "No other pod can use the address, and its block can never be released: pools run out although few pods run. An address leaks if a pod ends and Calico's CNI plugin is not called.",
	Confirm:    "calicoctl ipam show --ip=ADDRESS names the pod; kubectl get pod returns NotFound. On its node, crictl pods shows whether the sandbox still runs.",
	Misread:    "A pod that was deleted by force, or whose Node object was deleted, may still run on its machine and use the address. The API does not show that. An allocation without a known owner is not a leak: see ip/unknown-owner.",
	Remedies: []remedies.Remedy{remedies.ReleaseLeaks,
		remedies.ByHand("release the addresses of nodes whose machines are off, then the other addresses without host evidence", "the addresses can be assigned again",
			"a container that still runs shares its address with the next pod", "calico-audit repair --leaked-ips --terminated NODE", "calico-audit repair --leaked-ips --without-host-evidence"),
	},
	Never:    "Never release an address after a single look, and never with \"calicoctl ipam release --ip\", which checks neither handle nor sequence number.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: slices.Concat(state.ReleaseReads, collector.Reads),
	Run: func(st *state.State, f *audit.Findings) {
		if name, unread := st.UnreadPod(); unread {
			f.Inconclusive("not evaluated where only pods can show the owner: pod %s could not be read", name)
		}
		for _, r := range st.Unowned() {
			if !r.Owned {
				f.Add(leakFinding(st, r.AllocationRef, r.Validity))
			}
		}
	},
}

func leakFinding(st *state.State, r state.AllocationRef, v state.Validity) audit.Finding {
	attr := r.Attributes()
	handle, caution := attr.Handle, ""
	if !attr.HasHandle {
		handle, caution = "none", "without a handle, nothing identifies the assignment"
	}
	sequence := ""
	if n, ok := r.Block.SequenceAt(r.Ordinal); ok {
		sequence = fmt.Sprint(n)
	}
	x := audit.Finding{
		Absence: true, Severity: state.Warning, Subject: state.IPSubject(r.Addr(), attr.Node), Pools: state.PoolsOf(r.Block.Pool), Nodes: []string{r.Block.Owner.Node()},
		Message: fmt.Sprintf("%s is allocated, and its owner no longer exists: %s", r.Addr(), v.Why()),
		Evidence: state.Evidences("block", r.Block.CIDR, "owner of the block", r.Block.Owner, "handle", handle,
			"node", attr.Node, "machine", machineNote(st, attr.Node), "type", attr.Extras().Type, "assigned", attr.Assigned, "sequence", sequence, "caution", caution, "observed", state.Observed),
		Root: remedies.Of(st).RootOfLeak(r),
	}
	if x.Root == "leaks" { // this address may need another remedy than the last one
		x.Remedies = remedies.Of(st).LeakRemedies(r)
	}
	addHolders(st, &x, r, v)
	inUse := ""
	if uses := st.ProvenUses(r); len(uses) > 0 {
		inUse = hosts.NamespaceText(uses[0].View.Node, uses[0].Namespace)
	}
	x.Evidence = append(x.Evidence, collector.OfAddress(st, r).Evidence(inUse)...)
	return x
}

// machineNote describes the machine of a node that was deleted or is not Ready. Pods without an
// object may still run there.
func machineNote(st *state.State, node string) string {
	if !st.MachineMayRun(node) {
		return ""
	}
	_, why := st.MachineOff(node)
	return why
}

// addHolders adds the nodes that still use a leaked address. Only the datastore has lost its owner,
// so the address must stay allocated.
func addHolders(st *state.State, x *audit.Finding, r state.AllocationRef, v state.Validity) {
	if uses := st.ProvenUses(r); len(uses) > 0 {
		var where, nodes blocks.Names
		for _, u := range uses {
			where = append(where, hosts.NamespaceText(u.View.Node, u.Namespace))
			if !slices.Contains(nodes, u.View.Node) {
				nodes = append(nodes, u.View.Node)
			}
		}
		x.Message = fmt.Sprintf("%s is allocated, no object owns it (%s), and it is still in use on %s", r.Addr(), v.Why(), nodes)
		x.Evidence = append(x.Evidence, state.Evidence{Name: "still in use", Value: phrase.List(where) + "; not releasable"})
		x.Evidence = append(x.Evidence, hostUseEvidence(uses...)...)
		x.Remedies = []remedies.Remedy{remedies.EndUse(uses)}
		x.Nodes = append(x.Nodes, nodes...)
		return
	}
	for _, u := range st.Views.Uses(r.Addr()) {
		x.Evidence = append(x.Evidence, state.Evidence{Name: "may be in use", Value: fmt.Sprintf("%s, according to %s, which proves nothing now", hosts.NamespaceText(u.View.Node, u.Namespace), u.View.Text())})
	}
}
