package remedies

// AssignServices is for Services that ask for an address which no controller assigns. AnnounceRange is
// for addresses that BGP overlooks.
var (
	AssignServices = ByHand("run a controller that assigns addresses to Services: since Calico v3.30 a pool with allowedUses: [LoadBalancer] and kube-controllers' loadBalancer controller, else another one such as MetalLB's controller without its speakers",
		"the Services get their addresses, and BGP announces them", "Services of type LoadBalancer that ask for no address get one, too", "kubectl get services --all-namespaces")
	AnnounceRange = ByHand("list a range of several addresses in serviceLoadBalancerIPs of the BGPConfiguration, or install Calico v3.32", "BGP announces the addresses",
		"nodes attract the traffic of the whole range", "kubectl get bgpconfigurations default -o yaml")
)
