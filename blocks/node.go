package blocks

import (
	"net/netip"
	"slices"
	"strings"
)

// Node is a Kubernetes node, with what Calico keeps in its annotations.
type Node struct {
	Meta
	Labels map[string]string
	// Unschedulable is true for a cordoned node.
	Unschedulable bool
	// Taints are those that keep pods away: of effect NoSchedule or NoExecute.
	Taints []Taint
	// AllocatablePods is status.allocatable.pods; 0 when unknown.
	AllocatablePods int
	// Tunnels are the addresses of the node's own tunnel devices.
	Tunnels []Tunnel
	// Windows is true for nodes that run Windows.
	Windows bool
	// OutOfService is true for a node with [TaintOutOfService], of any effect.
	OutOfService bool
	// Ready is true if the node's Ready condition is, NotReady if there is such a
	// condition and it is not. A node that never reported has neither.
	Ready, NotReady bool
	// PodCIDRs are the node's ranges of pod addresses (spec.podCIDRs), from which
	// host-local and cloud CNIs assign; Calico's IPAM does not use them.
	PodCIDRs []netip.Prefix
	// Addresses are the node's BGP addresses with the length of their subnet
	// (projectcalico.org/IPv4Address and IPv6Address).
	Addresses []netip.Prefix
	// ASNumber is the node's own BGP AS number; 0 when it has none.
	ASNumber uint32
	// RouteReflectorID is the node's BGP cluster ID; set on route reflectors.
	RouteReflectorID string
	// Ours is the value of [OursAnnotation]; empty where there is none. OursSince is when
	// this program wrote the node last; zero if it did not, or managedFields are missing.
	Ours      string
	OursSince Time
}

// Tunnel is an address of a node's tunnel device.
type Tunnel struct {
	// Type is the allocation type that Calico records for it, such as
	// [TypeVXLAN].
	Type string
	Addr netip.Addr
}

// KeepsAway returns the taints that keep pods away for good: all but those of the
// node life-cycle itself (node.kubernetes.io/…: not ready, unreachable, memory
// pressure, …), which come and go; out of service does not.
func (n *Node) KeepsAway() (out []Taint) {
	for _, t := range n.Taints {
		if t.Key == TaintOutOfService || !strings.HasPrefix(t.Key, LifeCycleTaints) {
			out = append(out, t)
		}
	}
	return out
}

// AssignsPods reports whether an address is in one of the node's podCIDRs.
func (n *Node) AssignsPods(a netip.Addr) bool {
	return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Meta
	Labels map[string]string
	// PoolsV4 and PoolsV6 are the pools that the namespace's pods ask for
	// (cni.projectcalico.org/ipv4pools, ipv6pools): names or CIDRs.
	PoolsV4, PoolsV6 []string
}

// Workload is a pod.
type Workload struct {
	Meta
	Namespace string
	// Node is the node the pod is bound to; empty before scheduling.
	Node string
	// Phase is status.phase.
	Phase string
	// HostNetwork pods use their node's address and none of Calico's.
	HostNetwork bool
	// Ready is true if the pod's Ready condition is.
	Ready bool
	// HasClaim is true for a pod with a volume that is a PersistentVolumeClaim, its own
	// (ephemeral) included: its storage may be bound to the node.
	HasClaim bool
	// HasScratch is true for a pod with an emptyDir volume, whose content ends with the pod.
	HasScratch bool
	// NoEviction is true for a pod whose author asks, by an annotation of the cluster
	// autoscaler or the descheduler, not to evict it.
	NoEviction bool
	// StaticAddress is true for a pod that asks for an address by name
	// (cni.projectcalico.org/ipAddrs): its replacement gets no other.
	StaticAddress bool
	// RunsOnce is true for a pod that is not started again when it ends well
	// (spec.restartPolicy other than Always): evicted, its work is lost.
	RunsOnce bool
	// NetworkRemoved is true if Calico's podIP annotation is present and empty:
	// the CNI plugin has taken the network down.
	NetworkRemoved bool
	// Placement limits where the pod may run, shared by pods with the same limits; nil if
	// nothing that is read does.
	Placement *Placement
	// Controller is what manages the pod, shared by all of its pods; nil for a bare pod.
	Controller *Controller
	// Labels are read only together with PodDisruptionBudgets, and are shared by pods that
	// have the same.
	Labels map[string]string
	// StatusIPs are the addresses in the pod's status.
	StatusIPs []netip.Addr
	// AnnotationIPs are the addresses in Calico's annotations
	// (cni.projectcalico.org/podIP and podIPs).
	AnnotationIPs []netip.Addr
	// Extra is what most pods have nothing of; nil for those. [Workload.Extras] reads it.
	Extra *Extras
	// ContainerID is Calico's record of the sandbox.
	ContainerID string
	// Started is status.startTime; zero when absent.
	Started Time
}

// Extras are what few pods have; behind a pointer they cost the 150,000 others nothing.
type Extras struct {
	// NetworkIPs are the addresses of all its interfaces, secondary ones included, in
	// the annotation k8s.v1.cni.cncf.io/network-status.
	NetworkIPs []netip.Addr
	// Attached are those of them that are not on the cluster's own network, with their
	// networks, in order.
	Attached []AttachedAddress
	// Unreadable names the status field or annotation that could name an address of
	// the pod and cannot be parsed; empty if there is none. Such a pod may have any
	// address whose allocation names it.
	Unreadable string
	// PoolsV4 and PoolsV6 are the pools that the pod asks for.
	PoolsV4, PoolsV6 []string
	// VM is the name of the KubeVirt VirtualMachineInstance that the pod runs, by the
	// label vm.kubevirt.io/name or by an owner reference; empty for other pods.
	VM string
	// NoIPAM is true if the pod bypasses IPAM: it brings its own addresses
	// (cni.projectcalico.org/ipAddrsNoIpam).
	NoIPAM bool
	// NetworkStatus is true if the pod has the annotation k8s.v1.cni.cncf.io/network-status,
	// and it can be parsed.
	NetworkStatus bool
}

// Extras returns what few pods have, all empty for the others.
func (w *Workload) Extras() Extras {
	if w.Extra == nil {
		return Extras{}
	}
	return *w.Extra
}

// Extend returns the pod's extras, which it has from then on, to be set.
func (w *Workload) Extend() *Extras {
	if w.Extra == nil {
		w.Extra = &Extras{}
	}
	return w.Extra
}

// Key names the pod among all pods.
func (w *Workload) Key() Key { return Key{w.Namespace, w.Name} }

// FullName returns "namespace/name".
func (w *Workload) FullName() string { return w.Namespace + "/" + w.Name }

// Finished is true for a pod that will not use its addresses again: its phase
// is Succeeded or Failed, or it is being deleted and Calico has taken its
// network down (libcalico-go backend/k8s/conversion, IsFinished).
func (w *Workload) Finished() bool {
	switch w.Phase {
	case "Succeeded", "Failed", "Completed":
		return true
	}
	return !w.Deleting.IsZero() && w.NetworkRemoved
}

// Live is true for a pod of the pod network that is not finished. One with an address and
// without a node has a spec that could not be read, and may be of the host network.
func (w *Workload) Live() bool {
	specUnread := w.Node == "" && len(w.StatusIPs)+len(w.AnnotationIPs) > 0
	return !w.HostNetwork && !specUnread && !w.Finished()
}

// HasFamily reports whether the pod has an address of a family, by status or
// annotation.
func (w *Workload) HasFamily(f Family) bool {
	for _, a := range w.StatusIPs {
		if FamilyOf(a) == f {
			return true
		}
	}
	for _, a := range w.AnnotationIPs {
		if FamilyOf(a) == f {
			return true
		}
	}
	return false
}

// Waiting is true for a live pod that is bound to a node, still Pending, not
// being deleted, and has no address yet.
func (w *Workload) Waiting() bool {
	return w.Live() && w.Node != "" && w.Phase == "Pending" && w.Deleting.IsZero() &&
		len(w.StatusIPs) == 0 && len(w.AnnotationIPs) == 0
}

// Addresses calls yield for each address that the pod names anywhere, status first,
// each once.
func (w *Workload) Addresses(yield func(netip.Addr) bool) {
	all := [...][]netip.Addr{w.StatusIPs, w.AnnotationIPs, w.Extras().NetworkIPs}
	for i, list := range all {
		for j, a := range list {
			if slices.Contains(list[:j], a) || slices.ContainsFunc(all[:i], func(before []netip.Addr) bool { return slices.Contains(before, a) }) {
				continue
			}
			if !yield(a) {
				return
			}
		}
	}
}
