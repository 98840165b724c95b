package blocks

import (
	"net/netip"
	"slices"
	"strings"
)

// Node is a Kubernetes node, with the data from Calico's annotations.
type Node struct {
	Meta
	Labels map[string]string
	// Unschedulable is true for a cordoned node.
	Unschedulable bool
	// Taints are those with effect NoSchedule or NoExecute.
	Taints []Taint
	// Allocatable is status.allocatable; nodes with equal resources share it.
	Allocatable Quantities
	// Tunnels are the addresses of the node's tunnel devices.
	Tunnels []Tunnel
	// Wireguard holds [TypeWireguard] if Felix published a public key for IPv4, and
	// [TypeWireguardV6] if it published one for IPv6.
	Wireguard []string
	// FlannelIP is the address with which flannel has registered the node; invalid if there is none.
	FlannelIP netip.Addr
	// Flannel is true if flannel has registered the node, which lets other nodes route to its
	// podCIDR.
	Flannel bool
	// Windows is true for Windows nodes.
	Windows bool
	// OutOfService is true if the node has [TaintOutOfService], with any effect.
	OutOfService bool
	// Ready and NotReady reflect the node's Ready condition. Both are false for a node that
	// never reported.
	Ready, NotReady bool
	// NoSpec is true if a dump's node lacks its spec.
	NoSpec bool
	// PodCIDRs are the node's pod address ranges (spec.podCIDRs). host-local and cloud CNIs
	// assign from them; Calico's IPAM does not.
	PodCIDRs []netip.Prefix
	// Addresses are the node's BGP addresses with their subnet lengths
	// (projectcalico.org/IPv4Address and IPv6Address).
	Addresses []netip.Prefix
	// InternalIPs are the addresses of type InternalIP in the node's status, which the kubelet
	// reports.
	InternalIPs []netip.Addr
	// ASNumber is the node's own BGP AS number; 0 if unset.
	ASNumber uint32
	// RouteReflectorID is the node's BGP cluster ID; set on route reflectors.
	RouteReflectorID string
	// Ours is the value of [OursAnnotation]; empty if absent. OursSince is when this
	// program last wrote the node; zero if never, or without managedFields.
	Ours      string
	OursSince Time
}

// Tunnel is the address of a node's tunnel device.
type Tunnel struct {
	// Type is Calico's allocation type for it, such as [TypeVXLAN].
	Type string
	Addr netip.Addr
}

// AllocatablePods returns how many pods the node allows; 0 if unknown.
func (n *Node) AllocatablePods() int { return int(n.Allocatable["pods"] / 1000) }

// LacksTunnel reports whether calico-node has yet to take the node's tunnel address of a type, if a
// pool gives one. WireGuard needs one only on nodes with a key. Windows nodes have no tunnel
// addresses.
func (n *Node) LacksTunnel(kind string) bool {
	wireguard := kind == TypeWireguard || kind == TypeWireguardV6
	return !n.Windows && (!wireguard || slices.Contains(n.Wireguard, kind)) &&
		!slices.ContainsFunc(n.Tunnels, func(t Tunnel) bool { return t.Type == kind })
}

// KeepsAway returns the taints that keep pods away permanently. Taints of the node life
// cycle (node.kubernetes.io/…: not ready, unreachable, memory pressure, …) are omitted
// because they come and go, except out-of-service.
func (n *Node) KeepsAway() (out []Taint) {
	for _, t := range n.Taints {
		if t.Key == TaintOutOfService || !strings.HasPrefix(t.Key, LifeCycleTaints) {
			out = append(out, t)
		}
	}
	return out
}

// TemporarilyTainted reports whether a taint of the node life cycle keeps pods away now. It ignores
// that of a cordon, which the node's spec shows.
func (n *Node) TemporarilyTainted() bool {
	return slices.ContainsFunc(n.Taints, func(t Taint) bool { return strings.HasPrefix(t.Key, LifeCycleTaints) && t.Key != taintCordoned.Key })
}

// NoNetwork reports whether the node keeps pods away until its calico-node is Ready.
func (n *Node) NoNetwork() bool {
	return slices.ContainsFunc(n.Taints, func(t Taint) bool { return t.Key == TaintNetwork })
}

// AssignsPods reports whether an address lies in the node's podCIDRs.
func (n *Node) AssignsPods(a netip.Addr) bool {
	return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Meta
	Labels map[string]string
	// PoolsV4 and PoolsV6 are the pools, by name or CIDR, that the namespace requests for
	// its pods (cni.projectcalico.org/ipv4pools, ipv6pools).
	PoolsV4, PoolsV6 []string
}

// OnAzure reports whether the node is a virtual machine of Azure: it has the label of Azure's disk
// driver, which asks the cloud for the machine's zone.
func (n *Node) OnAzure() bool { _, is := n.Labels["topology.disk.csi.azure.com/zone"]; return is }

// OnAWS is [Node.OnAzure] for AWS.
func (n *Node) OnAWS() bool { _, is := n.Labels["topology.ebs.csi.aws.com/zone"]; return is }

// FromFlannel reports whether a node is migrating from Flannel to Calico. Calico's own collector
// skips its blocks (kube-controllers pkg/controllers/flannelmigration).
func (n *Node) FromFlannel() bool {
	l := n.Labels["projectcalico.org/node-network-during-migration"]
	return l != "" && l != "calico"
}
