package checks

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

var configGCDisabled = audit.Check{
	ID:         "config/gc-disabled",
	Title:      "Calico's own garbage collection is off, its grace period is 0, or its pod does not run",
	Severities: []state.Severity{state.Warning},
	Why:        "Without the collector in calico-kube-controllers, leaked addresses and spare empty blocks accumulate until pools run out. A leakGracePeriod of 0, or none, does not mean \"at once\" or \"the default\": it turns off the collection of empty blocks, and of leaks on existing nodes.",
	Confirm:    "kubectl get kubecontrollersconfigurations -o yaml; kubectl get pods -A -l k8s-app=calico-kube-controllers",
	Remedies: []remedies.Remedy{
		remedies.ByHand("set controllers.node.leakGracePeriod in the KubeControllersConfiguration, for example to 15m",
			"Calico's collector releases leaked addresses and empty blocks after that time", remedies.EverywhereRisk,
			"kubectl get kubecontrollersconfigurations -o yaml"),
		remedies.StartCollector, remedies.RestoreNetwork, remedies.InitializeNode, remedies.AdmitCollector,
	},
	Never:    "Never set leakGracePeriod: 0 to speed up collection.",
	Requires: []blocks.Resource{blocks.ControllerConfig},
	Optional: slices.Concat(state.OtherIPAMReads, state.ReleaseReads),
	Run: func(st *state.State, f *audit.Findings) {
		c := &st.Controllers
		if why := collector.Off(c); why != "" {
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.ClusterSubject(st), Message: "Calico's garbage collection is off: " + why,
				Evidence: state.Evidences("object", "KubeControllersConfiguration default", "last written", c.Written),
				Fix:      audit.Look("kubectl get kubecontrollersconfigurations -o yaml"), Remedies: f.Check.Remedies[:1],
			})
		} else if g := st.FirstMissing(state.OtherIPAMReads); g != nil {
			f.SkipPartial("not evaluated whether the collector runs: %s", g)
		} else if why := collector.Stopped(st); why != "" {
			fix := remedies.RunCollector(st)
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.ClusterSubject(st), Message: "Calico's garbage collector does not run: " + why, Absence: true,
				Evidence: state.Evidences("observed", state.Observed), Fix: audit.Look(fix.Commands[0]), Remedies: []remedies.Remedy{fix},
			})
		}
	},
}
