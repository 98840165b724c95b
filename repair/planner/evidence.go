package planner

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/repair"
)

// withoutHostEvidence is the consent to release what no node was asked about.
const withoutHostEvidence = "--without-host-evidence"

// evidence is why it is believed that nothing on its node uses an address that
// nothing owns.
type evidence struct {
	repair.Reason // why it is not believed; none if it is
	// says what it rests on; consent is true if on nothing but the operator's word
	// that no node needs to be asked.
	says    string
	consent bool
	// off names the evidence that the machine is off, if it is that: it must be the
	// same in both observations.
	off string
}

// evidenceFor says whether there is evidence that no one uses an address, by host
// views, by what is known of its node's machine, or by consent. A view that shows the
// address in use is never overruled. Where a node does not answer, because its object
// is gone or it is NotReady, its pods may run on as if nothing were: that no node was
// asked about the address is then no oversight to consent to.
func evidenceFor(st *state.State, req repair.Request, r state.AllocationRef) evidence {
	host := st.HostEvidence(r)
	off, why := st.MachineOff(host.Node)
	// A live migration may have brought the machine to the alternate owner's node.
	if alt := r.Attributes().Extras().Alternate; alt != nil && alt.Node != "" && alt.Node != host.Node && host.Verdict != hosts.ShowsInUse {
		altOff, altWhy := st.MachineOff(alt.Node)
		if !altOff && st.MachineMayRun(alt.Node) {
			return evidence{Reason: repair.Reason{Code: repair.RefusedMachineMayRun, Why: altWhy + ": it is the node of the alternate owner, and what ran there may run on"}}
		}
		off = off && altOff
	}
	return evidenceOf(st, req, host, off, why)
}

// evidenceOf is evidenceFor of one node, by what its views say and by whether its machine is
// off, and why.
func evidenceOf(st *state.State, req repair.Request, host hosts.Evidence, off bool, why string) evidence {
	if host.Verdict == hosts.ShowsInUse {
		return evidence{Reason: repair.Reason{Code: repair.RefusedHostView, Why: host.Reason + remedy(host.Renew)}}
	}
	if off {
		e := evidence{says: why, off: "the out-of-service taint of " + host.Node}
		if slices.Contains(req.Terminated, host.Node) {
			e.off = "--terminated " + host.Node
		}
		return e
	}
	if st.MachineMayRun(host.Node) && host.Verdict != hosts.ShowsFree {
		say := fmt.Sprintf("say so with --terminated %s", phrase.Arg(host.Node))
		if !st.Vanished(host.Node) {
			say += ", or by the taint node.kubernetes.io/out-of-service"
		}
		if host.Renew != "" {
			say += "; if it runs, " + host.Renew
		}
		return evidence{Reason: repair.Because(repair.RefusedMachineMayRun, "%s: what ran there may run on, and %s. If the machine is off, %s", why, host.Reason, say)}
	}
	switch {
	case host.Verdict == hosts.ShowsFree:
		return evidence{says: host.Reason}
	case host.Node != "" && st.UnreadableNode(host.Node):
		return evidence{Reason: repair.Reason{Code: repair.RefusedNotRead, Why: "node " + host.Node + " could not be read, so that it is not known whether it answers; " + host.Reason}}
	case req.WithoutHostEvidence:
		return evidence{says: host.Reason + "; you let that pass (--without-host-evidence)", consent: true}
	}
	return evidence{Reason: repair.Because(repair.RefusedNoEvidence,
		"it is not known whether its node still uses it: %s%s (or let it pass with --without-host-evidence)", host.Reason, remedy(host.Renew))}
}

// remedy is how better evidence is given, as the end of a sentence.
func remedy(renew string) string {
	if renew == "" {
		return ""
	}
	return "; " + renew
}

// UnansweredNodes returns, sorted, the nodes that do not answer for their machines,
// because their object is gone or they are NotReady, and that leave allocations that
// nothing owns, or may have left those of secondary networks that a request asks for: those
// that "--terminated all" means.
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

// evidenceWarnings say on whose word a plan's steps release addresses.
func evidenceWarnings(p *repair.Plan) []string {
	var unasked, off []string
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
		out = append(out, fmt.Sprintf("of %s of secondary networks nothing records the node: the evidence is of all that anything names, %s. If a machine has left the cluster and runs on, switch it off first: its pods would share their addresses with others",
			phrase.Plural(anywhere, "address"), among))
	}
	if len(unasked) > 0 {
		out = append(out, fmt.Sprintf("%s would be released without asking any node (--without-host-evidence): %s. A container that outlived its pod object would not be seen, and would share its address with the next pod",
			phrase.Plural(len(unasked), "address"), phrase.List(unasked)))
	}
	if len(off) > 0 {
		out = append(out, fmt.Sprintf("%s would be released because the machines that had them are off, by %s: if one of them runs on, its pods share their addresses with others",
			phrase.Plural(len(off), "address"), phrase.List(repair.Tidy(off))))
	}
	return out
}
