package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configLeftover = audit.Check{
	ID:         "config/leftover",
	Title:      "a repair that moves pods left a reservation or a cordon behind",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning; info for a node that is not cordoned any more and carries the annotation still",
	Why: "The addresses of a reserved block are handed out to no one, and a cordoned node takes no pods, until that is taken back. " +
		"A run takes both back whatever ends it, unless it is killed.",
	Confirm: "kubectl get ipreservations,nodes -o yaml, and look for the annotation " + blocks.OursAnnotation + ".",
	Misread: "A run that waits longer than the grace for one pod to end or to start looks the same, and so does any of --rehome that takes longer than the grace: see first that none runs (kubectl get leases -n kube-system calico-audit-consolidation).",
	Remedies: []remedies.Remedy{
		remedies.Repair("go on with what was begun, or take it back", "--consolidate", "the reservation and the cordons of the run go", remedies.Consolidate.Risk),
		remedies.ByHand("take it back by the journal of the run, which moves nothing", "the reservation and the cordons of the run go", "none", "calico-audit repair undo JOURNAL"),
	},
	Never:    "Never uncordon the nodes while the run goes on: its pods then come to nodes that have no address for them.",
	Requires: []blocks.Resource{blocks.Reservations, blocks.Nodes},
	Optional: remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		for i := range remedies.Of(st).Leftovers {
			l := &remedies.Of(st).Leftovers[i]
			x := audit.Finding{
				Severity: state.Warning, Subject: l.Subject(), Root: "leftovers",
				Evidence: state.Evidences("object", l.Object(), "annotation", blocks.OursAnnotation+": "+l.Mark, "last written by the run", phrase.Time(l.Since)),
			}
			switch {
			case l.Node == nil:
				for _, cidr := range l.Reservation.CIDRs {
					x.Pools = append(x.Pools, state.PoolsOf(st.PoolOf(cidr))...)
				}
				x.Message = fmt.Sprintf("%s is still reserved: the repair that moves pods (%s) did not finish, or %s", x.Subject.ID(), l.Mark, l.OrElse())
			case l.Node.Unschedulable:
				x.Message = fmt.Sprintf("node %s is still cordoned: the repair that moves pods (%s) did not finish, or %s", l.Node.Name, l.Mark, l.OrElse())
			default:
				x.Severity = state.Info
				x.Message = fmt.Sprintf("node %s was cordoned while pods moved (%s), and uncordoned by others: the annotation is left", l.Node.Name, l.Mark)
			}
			f.Add(x)
		}
	},
}
