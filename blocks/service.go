package blocks

import "net/netip"

// Service is a Kubernetes Service.
type Service struct {
	Meta
	Namespace string
	// ClusterIPs are its cluster IPs; empty for headless Services.
	ClusterIPs []netip.Addr
	// Pending is true for a Service of type LoadBalancer without an address, of no class or of
	// Calico's ([CalicoLoadBalancer]).
	Pending bool
	// Asks is spec.loadBalancerIP of a Service that has neither a class nor Calico's annotations
	// for an address or a pool; zero for any other.
	Asks netip.Addr
	// Local is true if only nodes with a pod of it announce its addresses (externalTrafficPolicy).
	Local bool
}

// CalicoLoadBalancer is the class of the Services that only Calico serves (kube-controllers
// pkg/controllers/loadbalancer, calicoLoadBalancerClass).
const CalicoLoadBalancer = "calico"

// Key identifies the Service among all Services.
func (s *Service) Key() Key { return Key{s.Namespace, s.Name} }
