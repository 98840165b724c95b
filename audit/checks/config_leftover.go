package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configLeftover = audit.Check{
	ID:         "config/leftover",
	Title:      "a run of calico-audit ended before its end and left cordons, reservations or half-done steps",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning; info for an annotation that no longer has an effect",
	Why: "The addresses of a reserved block are handed out to no one, a cordoned node takes no pods, and objects that are half-done contradict each other. " +
		"A run takes back what it made for a while whatever ends it, unless it is killed.",
	Confirm: "kubectl get ipreservations,nodes -o yaml, and look for the annotation " + blocks.OursAnnotation + ".",
	Misread: "Where Leases may not be read (get leases in kube-system), a run that moves pods and writes nothing for two minutes looks the same: " +
		"see first that none runs (kubectl get leases -n kube-system " + blocks.LeaseName + ").",
	Remedies: []remedies.Remedy{
		remedies.Repair("finish what the run began: the same command, run again, does so too", "--consolidate", "the reservation and the cordons of the run go", remedies.Consolidate.Risk),
		remedies.Repair("take back what the run left", "undo", "the reservation and the cordons of the run go, and half-done steps are reverted or finished", "none: only what the run left is written"),
	},
	Never:    "Never uncordon the nodes while the run goes on: its pods then come to nodes that have no address for them.",
	Requires: []blocks.Resource{blocks.Reservations, blocks.Nodes},
	Optional: append([]blocks.Resource{blocks.Affinities, blocks.Handles}, remedies.RootReads...),
	Run: func(st *state.State, f *audit.Findings) {
		for _, l := range remedies.Of(st).Leftovers {
			x := audit.Finding{
				Severity: state.Info, Subject: state.Subject{Kind: state.KindConfig, Name: l.Run}, Root: l.RootID(), Message: l.Text(),
				Evidence: state.Evidences("objects", phrase.List(l.Names()), "last written by the run", phrase.Time(l.Since)),
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
