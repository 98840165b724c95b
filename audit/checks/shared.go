package checks

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// eachAffinity calls fn for each affinity that is not marked deleted, with the block of its CIDR
// or nil.
func eachAffinity(st *state.State, fn func(*blocks.Affinity, *state.Block)) {
	for i := range st.Affinities {
		if a := &st.Affinities[i]; !a.SoftDeleted {
			fn(a, st.BlockOf(a.CIDR))
		}
	}
}

// affinityFinding returns a finding about an affinity, with the evidence that all such findings
// share.
func affinityFinding(st *state.State, a *blocks.Affinity, sev state.Severity, message string) audit.Finding {
	block, nodes := "does not exist", []string(nil)
	if b := st.BlockOf(a.CIDR); b != nil {
		block = fmt.Sprintf("%s, owner %s, %d in use", b.Name, b.Owner, b.Used)
		nodes = append(nodes, b.Owner.Node())
	}
	p := st.PoolOf(a.CIDR)
	return audit.Finding{
		Severity: sev, Subject: state.AffinitySubject(a), Pools: state.PoolsOf(p), Nodes: nodes, Message: message,
		Evidence: state.Evidences("state", string(a.Effective()), "block", block, "pool", state.PoolName(p),
			"created", a.Created, "last written", a.Written, "observed", state.Observed),
		Fix: audit.Look("kubectl get blockaffinities %s -o yaml", a.Name),
	}
}

// begunHere marks a finding caused by an unfinished step of this program: message and evidence name
// the step, and the finding belongs to the run's leftovers.
func begunHere(st *state.State, f *audit.Finding, r blocks.Resource, name string, ours bool) {
	if !ours {
		return
	}
	f.Message += ": a repair by calico-audit did not finish, or still runs"
	f.Evidence = append(f.Evidence, state.Evidence{Name: "written last by", Value: blocks.FieldManager})
	if l := remedies.Of(st).LeftoverOf(r, name); l != nil {
		if f.Root = l.RootID(); l.Known() {
			f.Remedies = nil // the run's remedies apply
		}
	}
}

// hostUseEvidence returns the uses of an address that views show, as evidence.
func hostUseEvidence(uses ...hosts.Use) (out []state.Evidence) {
	for _, u := range uses {
		out = append(out, state.Evidences("in use in", u, "interfaces", strings.Join(u.Namespace.HostInterfaces, ", "),
			"sandbox", u.Namespace.Sandbox, "pod UID", u.Namespace.PodUID, "host view", u.View.Text())...)
	}
	return out
}

// unreadNote counts the unreadable blocks whose addresses are missing in a total, or returns "".
// Placed blocks belong to the subject, unplaced ones may belong to it.
func unreadNote(placed, unplaced int) string {
	if placed+unplaced == 0 {
		return ""
	}
	return fmt.Sprintf("; blocks that could not be read: %d", placed+unplaced)
}
