package planner

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// withoutHostEvidence is the consent to release addresses for which no host view was available.
const withoutHostEvidence = "--without-host-evidence"

// consents returns those consents of a request that can replace evidence.
func consents(req repair.Request) releasable.Consents {
	return releasable.Consents{Terminated: req.Terminated, WithoutHostEvidence: req.WithoutHostEvidence}
}

// UnansweredNodes returns, sorted, the nodes that "--terminated all" stands for. They are gone or
// NotReady, and have ownerless allocations or, if the request covers secondary networks, may have
// some there.
func UnansweredNodes(st *state.State, req repair.Request) []string {
	var out []string
	if req.WhereaboutsStranded || req.WhereaboutsReservations {
		out = append(out, whereabouts.Of(st).Unanswered()...)
	}
	st.EachAllocation(func(r state.AllocationRef, node string) {
		if node == "" || slices.Contains(out, node) || !st.MachineMayRun(node) {
			return
		}
		if !st.Classify(r).Owned || !st.WithTerminated([]string{node}).Classify(r).Owned {
			out = append(out, node)
		}
	})
	slices.Sort(out)
	return out
}

// Leaves reports whether a node has any allocation, or may have one of a secondary network.
func Leaves(st *state.State, node string) bool {
	found := slices.Contains(whereabouts.Of(st).AllMachines(), node)
	st.EachAllocation(func(_ state.AllocationRef, of string) { found = found || of == node })
	return found
}

// evidenceWarnings names the operator's confirmations that the plan's releases rely on.
func evidenceWarnings(p *repair.Plan) []string {
	var unasked, off blocks.Names
	anywhere, among := 0, ""
	for i := range p.Steps {
		s := &p.Steps[i]
		if j := slices.IndexFunc(s.Evidence, func(e state.Evidence) bool { return e.Name == everyNode }); j >= 0 {
			anywhere, among = anywhere+1, s.Evidence[j].Value
		}
		switch {
		case !KindOf(s.Kind).AsksHosts:
		case s.Guard(repair.GuardMachineOff) != "":
			off = append(off, s.Guard(repair.GuardMachineOff))
		case slices.Contains(s.Evidence, state.Evidence{Name: "consent", Value: withoutHostEvidence}):
			unasked = append(unasked, s.Target.ID())
		}
	}
	var out []string
	if anywhere > 0 {
		out = append(out, fmt.Sprintf("no object records the node of addresses of secondary networks (%d): the evidence covers every node that any object names (%s). If a machine left the cluster but still runs, switch it off first: its pods would share their addresses with others",
			anywhere, among))
	}
	if len(unasked) > 0 {
		out = append(out, fmt.Sprintf("addresses released without asking any node (--without-host-evidence): %s. A container that outlived its pod object would share its address with the next pod", unasked))
	}
	if len(off) > 0 {
		out = append(out, fmt.Sprintf("addresses released because their machines are off (%s): if one still runs, its pods share their addresses with others", repair.Tidy(off)))
	}
	return out
}
