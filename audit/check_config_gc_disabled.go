package audit

import (
	"github.com/calico-audit/calico-audit/blocks"
)

var configGCDisabled = Check{
	ID:       "config/gc-disabled",
	Title:    "Calico's own garbage collection is off, or its grace is 0",
	Severity: "warning",
	Why: "Leaked addresses, and empty blocks of nodes that hold several, pile up until pools run out: calico-kube-controllers would release them. " +
		"A leakGracePeriod of 0, or none, does not mean \"at once\" or \"the default\": it turns the collection of empty blocks off, and that of leaks on nodes that exist.",
	Confirm: "kubectl get kubecontrollersconfigurations default -o yaml",
	Fix:     "Give the KubeControllersConfiguration a controllers.node section, and a leakGracePeriod. calicoctl and kube-controllers write 15m when they make the object; one made with kubectl may lack it.",
	Never:   "Never use leakGracePeriod: 0 to speed collection up.",
	Needs:   []blocks.Resource{blocks.ControllerConfig},
	Run: func(st *State, f *Findings) {
		c := &st.Controllers
		why := collectorOff(c)
		if why == "" {
			return
		}
		f.Add(Finding{
			Severity: Warning, Subject: ClusterSubject(st), Message: "Calico's garbage collection is off: " + why,
			Evidence: Evidences("object", "KubeControllersConfiguration default", "last written", FormatTime(c.Written)),
			Fix:      Fix{"look", "kubectl get kubecontrollersconfigurations default -o yaml"},
		})
	},
}

// collectorOff says why Calico's own collector does not work; empty if it does, or if
// no object configures it and its defaults hold.
func collectorOff(c *blocks.ControllersConfig) string {
	switch {
	case !c.Present:
		return ""
	case !c.NodeController:
		return "controllers.node is not configured, so that nothing collects leaked addresses and empty blocks"
	case !c.LeakGraceSet:
		return "leakGracePeriod is not set, which turns the collection of leaked addresses and empty blocks off"
	case c.LeakGrace == 0:
		return "leakGracePeriod is 0, which turns the collection of leaked addresses and empty blocks off"
	}
	return ""
}
