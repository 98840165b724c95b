package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configLeftover = audit.Check{
	ID:         "config/leftover",
	Title:      "an interrupted run of calico-audit left cordons, reservations or half-done steps",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning; info for an annotation that no longer has an effect",
	Why:        "A reserved block assigns no addresses, a cordoned node takes no pods, and half-done objects contradict each other. A run reverts its cordons and reservations at its end, unless it is killed.",
	Confirm:    "kubectl get ipreservations,nodes -o yaml, and look for the annotation " + blocks.OursAnnotation + ".",
	Misread:    "Without the right to read Leases (get leases in kube-system), calico-audit considers a run that moves pods dead after two minutes without a write. Check first that none runs (kubectl get leases -n kube-system " + blocks.LeaseName + ").",
	Remedies: []remedies.Remedy{
		remedies.Repair("finish the run: the same command, run again, does so too", "--consolidate", "the reservation and the cordons of the run are removed", remedies.Consolidate.Risk),
		remedies.Repair("undo the run's changes", "undo", "the reservation and the cordons of the run are removed, and half-done steps are reverted or finished", "none: only objects that the run left are written"),
	},
	Never:    "Never uncordon the nodes while the run is in progress: its pods would start on nodes that have no address for them.",
	Requires: []blocks.Resource{blocks.Reservations, blocks.Nodes},
	Optional: append([]blocks.Resource{blocks.Affinities, blocks.Handles}, remedies.RootReads...),
	Run: func(st *state.State, f *audit.Findings) {
		for _, l := range remedies.Of(st).Leftovers {
			x := audit.Finding{
				Severity: state.Info, Subject: state.Subject{Kind: state.KindConfig, Name: l.Run}, Root: l.RootID(), Message: l.Text(),
				Evidence: state.Evidences("objects", l.Names(), "last written by the run", l.Since),
			}
			if l.Matters() {
				x.Severity = state.Warning
			}
			if l.Mark != "" {
				x.Evidence = append(x.Evidence, state.Evidences("annotation", blocks.OursAnnotation+": "+l.Mark)...)
			}
			for _, n := range l.Nodes {
				x.Nodes = append(x.Nodes, n.Name)
			}
			for _, r := range l.Reservations {
				for _, cidr := range r.CIDRs {
					x.Pools = append(x.Pools, state.PoolsOf(st.PoolOf(cidr))...)
				}
			}
			f.Add(x)
		}
	},
}
