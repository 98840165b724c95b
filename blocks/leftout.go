package blocks

import (
	"fmt"
	"strings"
)

// PodsLeftOut names a namespace without pods in the files although blocks name pods of it. If the
// files hold DaemonSets' pods of other nodes, it also names such a node. It also notices that the
// addresses of most pods were replaced or left out.
func PodsLeftOut(s *Snapshot) string {
	exists, ready, inNamespace, onNode, daemons := existing(s.Namespaces), map[string]bool{}, map[string]bool{}, map[string]bool{}, false
	bare := map[Key]bool{} // pods without node and phase, which may be manifests
	_, some := NamespaceLeftOut(s)
	var addresses references // of Ready pods
	for i := range s.Nodes {
		ready[s.Nodes[i].Name] = s.Nodes[i].Ready
	}
	for _, w := range s.Workloads {
		if w.Phase == "" && w.Extras().Partial == "" {
			if w.Node != "" {
				return noPhase(w.Key())
			}
			bare[w.Key()] = true
		}
		if w.Ready && !w.HostNetwork {
			addresses.add(len(w.StatusIPs)+len(w.AnnotationIPs) > 0, "")
		}
		inNamespace[w.Namespace], onNode[w.Node] = true, true
		daemons = daemons || w.OfDaemonSet()
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			switch a := &s.Blocks[i].Attributes[j]; {
			case a.Pod == "":
			case bare[Key{a.Namespace, a.Pod}]:
				return noPhase(Key{a.Namespace, a.Pod})
			case !inNamespace[a.Namespace] && (exists[a.Namespace] || some || len(exists) == 0 || a.Namespace == "kube-system"):
				return fmt.Sprintf("blocks name pods of namespace %q, and the files hold none of them", a.Namespace)
			case daemons && ready[a.Node] && !onNode[a.Node]:
				return fmt.Sprintf("blocks name pods on node %q, and the files hold none of its pods, not even of DaemonSets", a.Node)
			}
		}
	}
	masked := map[string]bool{} // by pod, which may have a gap for each of its fields
	for i := range s.Gaps {
		if g := &s.Gaps[i]; g.Resource == Pods && g.Tolerated && strings.HasPrefix(g.Field, "status.podIP") {
			masked[g.Name] = true
		}
	}
	if len(masked) > len(s.Workloads)/2 {
		return "status.podIPs of most pods are no addresses, and kubelets write nothing else: they were replaced (as by must-gather-clean)"
	}
	if addresses.missing >= manyOf && addresses.missing > addresses.found {
		return fmt.Sprintf("%d of %d Ready pods have no address, although kubelets report addresses before readiness: the addresses were left out", addresses.missing, addresses.found+addresses.missing)
	}
	return ""
}

func noPhase(pod Key) string {
	return fmt.Sprintf("pod %s has no status.phase, which the API server always sets", pod)
}

// NodeLeftOut returns a Ready pod whose Node is absent: Kubernetes deletes the pods of a deleted
// Node within a minute or so (pkg/controller/podgc). Only pods of DaemonSets count, which run on
// every node: any other pod may be a leftover of a machine that cannot be reached.
func NodeLeftOut(s *Snapshot) string {
	exists := make(map[string]bool, len(s.Nodes))
	for i := range s.Nodes {
		exists[s.Nodes[i].Name] = true
	}
	for _, w := range s.Workloads {
		if w.Ready && w.OfDaemonSet() && w.Node != "" && !exists[w.Node] {
			return fmt.Sprintf("pod %s/%s of a DaemonSet runs on node %q, and the files do not hold the node", w.Namespace, w.Name, w.Node)
		}
	}
	return ""
}

// NamespaceLeftOut returns the namespace of a pod if the files lack it but hold other namespaces: a
// namespace is deleted only after its pods.
func NamespaceLeftOut(s *Snapshot) (name string, out bool) {
	exists := existing(s.Namespaces)
	for _, w := range s.Workloads {
		if len(exists) > 0 && !exists[w.Namespace] {
			return w.Namespace, true
		}
	}
	return "", false
}

func existing(namespaces []Namespace) map[string]bool {
	exists := make(map[string]bool, len(namespaces))
	for i := range namespaces {
		exists[namespaces[i].Name] = true
	}
	return exists
}
