package remedies

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

// Remedies for nodes that keep pods away, and for pods of calico-kube-controllers that do not run.
var (
	// StartCollector is the remedy if no pod of the collector is Ready.
	StartCollector = ByHand("start calico-kube-controllers again: give its Deployment one replica, or see in its pod's events and log why it is not Ready", "Calico's collector releases leaked addresses, empty blocks and the blocks of deleted nodes", "none",
		"kubectl get pods --all-namespaces -o wide --selector=k8s-app=calico-kube-controllers")
	// RestoreNetwork is for nodes that accept no pods because calico-node is not Ready there.
	RestoreNetwork = ByHand("let calico-node become Ready: its log names the reason; if it waits for Typha, let Typha's pods tolerate the taint "+blocks.TaintNetwork+" (with Tigera's operator typhaDeployment in the Installation)", "the taint is removed, and all waiting pods start", "none",
		"kubectl get pods --all-namespaces -o wide --selector='k8s-app in (calico-node, calico-typha)'")
	// ResetNetwork is for a node that accepts no pods although calico-node is Ready there.
	ResetNetwork = ByHand("restart calico-node on the node: it sets the condition NetworkUnavailable to False when it starts; on Google Cloud, turn off the cloud provider's routes (--configure-cloud-routes=false), which set it to True again",
		"the taint is removed, and the node accepts pods", "none", "kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")
	// InitializeNode is for a node that no cloud-controller-manager has initialized.
	InitializeNode = ByHand("let the controller that removes the taint run and find the machine: its pods need hostNetwork, a toleration of the taint, and credentials; without a cloud provider, start the kubelets without --cloud-provider=external and remove the taint",
		"the node accepts pods", "none", "kubectl get pods --all-namespaces -o wide --field-selector status.phase=Pending")
	// AdmitCollector is for calico-kube-controllers, if no node admits its pods.
	AdmitCollector = ByHand("let the pods of calico-kube-controllers tolerate the taint (with Tigera's operator controlPlaneTolerations of the Installation), or add a node without it", "the collector starts", "none",
		"kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints")
)

// OpenNode returns the remedy for a node that keeps pods away.
func OpenNode(c *agents.Closed) Remedy {
	switch {
	case c.By != "":
		return InitializeNode
	case c.Agent != nil && c.Agent.Ready:
		return ResetNetwork
	}
	return RestoreNetwork
}

// RunCollector returns the remedy for a collector without a Ready pod.
func RunCollector(st *state.State) Remedy {
	refusals := collector.Refusals(st)
	if len(refusals) == 0 {
		return StartCollector
	}
	refuses := func(is func(blocks.Taint) bool) bool {
		return slices.ContainsFunc(refusals, func(r agents.Refusal) bool { return is(r.Taint) })
	}
	for _, c := range agents.Find(st) {
		if refuses(func(t blocks.Taint) bool { return t == c.Taint }) {
			return OpenNode(&c)
		}
	}
	if refuses(func(t blocks.Taint) bool { return t.Key == blocks.TaintNetwork }) {
		return RestoreNetwork
	}
	return AdmitCollector
}
