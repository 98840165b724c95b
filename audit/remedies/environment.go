package remedies

// SetFelix is for tunnels that the FelixConfiguration turns off.
func SetFelix(field string) Remedy {
	return ByHand("remove "+field+" from the FelixConfiguration, or set it to true", "Felix sets up the tunnels", "none", "kubectl get felixconfigurations default -o yaml")
}

// UnsetVariable is for an environment variable of calico-node that overrides the FelixConfiguration.
func UnsetVariable(variable string) Remedy {
	return ByHand("remove "+variable+" from the environment of the DaemonSet calico-node (of its source, such as the chart or kubespray, too), so that the FelixConfiguration applies; or change its value there",
		"Felix uses the wanted setting on every node", "calico-node restarts on every node; nodes with different VXLAN settings do not reach each other meanwhile", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
}
