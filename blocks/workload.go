package blocks

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// Workload is a pod.
type Workload struct {
	Meta
	Namespace string
	// Node is the pod's node; empty before scheduling.
	Node string
	// Phase is status.phase.
	Phase string
	// HostNetwork pods use their node's address, not one of Calico's.
	HostNetwork bool
	// Ready is true if the pod's Ready condition is true.
	Ready bool
	// FelixOnly is true for a pod of calico-node whose probes ask Felix and not BIRD, as where
	// BGP is off (Tigera's operator, calico-vxlan.yaml, kubespray).
	FelixOnly bool
	// HasClaim is true if the pod uses a PersistentVolumeClaim, including ephemeral ones, or is not
	// a DaemonSet's and uses a hostPath or a volume that is attached to its node; its storage may be
	// bound to the node.
	HasClaim bool
	// HasScratch is true if the pod has an emptyDir volume, which is lost with the pod.
	HasScratch bool
	// NoEviction is true if an annotation of the cluster autoscaler or the descheduler asks
	// not to evict the pod.
	NoEviction bool
	// StaticAddress is true if the pod requests a specific address
	// (cni.projectcalico.org/ipAddrs); its replacement gets the same.
	StaticAddress bool
	// RunsOnce is true if the pod does not restart after success (spec.restartPolicy other
	// than Always); eviction loses its work.
	RunsOnce bool
	// NetworkRemoved is true if Calico's podIP annotation is present but empty: the CNI
	// plugin has removed the pod's network.
	NetworkRemoved bool
	// Placement limits the nodes where the pod may run; nil without limits. Pods with equal
	// limits share it.
	Placement *Placement
	// Scheduling holds the other rules of its scheduler; nil if they were not read, as in snapshots
	// of older releases.
	Scheduling *Scheduling
	// Controller manages the pod; nil for a bare pod. The controller's pods share it.
	Controller *Controller
	// Labels are only read together with PodDisruptionBudgets. Pods with equal labels share
	// them.
	Labels map[string]string
	// StatusIPs are the addresses in status.
	StatusIPs []netip.Addr
	// AnnotationIPs are the addresses in Calico's annotations
	// (cni.projectcalico.org/podIP and podIPs).
	AnnotationIPs []netip.Addr
	// Extra holds rare attributes; nil for most pods. [Workload.Extras] reads it.
	Extra *Extras
	// ContainerID is the sandbox ID that Calico recorded.
	ContainerID string
	// Started is status.startTime; zero if absent.
	Started Time
}

// Extras holds attributes that few pods have. A pointer to it saves memory for the 150,000 pods of
// a large cluster that have none.
type Extras struct {
	// NetworkIPs are the addresses of all interfaces, secondary ones included, from the
	// annotation k8s.v1.cni.cncf.io/network-status.
	NetworkIPs []netip.Addr
	// Attached are the NetworkIPs outside the cluster's own network, with their networks,
	// in order.
	Attached []AttachedAddress
	// Unreadable names the field or annotation that may hold an address of the pod but
	// cannot be parsed; empty if all can. Such a pod may own any address whose allocation
	// names it.
	Unreadable string
	// Partial names a field about the pod's state or placement that cannot be parsed, such as its
	// phase; empty if there is none.
	Partial string
	// PoolsV4 and PoolsV6 are the pools that the pod requests.
	PoolsV4, PoolsV6 []string
	// StaticIPs are the addresses that the pod requests (cni.projectcalico.org/ipAddrs).
	StaticIPs []netip.Addr
	// FloatingIPs are addresses that Felix translates to the pod's (cni.projectcalico.org/floatingIPs).
	// No block records them.
	FloatingIPs []netip.Addr
	// Rejected names the annotation that makes Calico's CNI plugin reject the pod, because it
	// cannot be parsed; empty if there is none.
	Rejected string
	// VM is the KubeVirt VirtualMachineInstance that the pod runs, from the label
	// vm.kubevirt.io/name or an owner reference; empty for other pods.
	VM string
	// NoIPAM is true if the pod bypasses IPAM and brings its own addresses
	// (cni.projectcalico.org/ipAddrsNoIpam).
	NoIPAM bool
	// Ended is the latest time in the status of a finished pod: a container's end or a condition's
	// last transition. Zero if the status has none.
	Ended Time
	// NetworkStatus is true if the pod has a valid annotation
	// k8s.v1.cni.cncf.io/network-status.
	NetworkStatus bool
	// Interfaces are the names in the network status, except the cluster's own network.
	Interfaces []string
	// Env holds environment variables of a calico-node pod: "" for a value from another object, such
	// as a ConfigMap.
	Env map[string]string
	// Upgrades is true if the pod is of calico-node, and its init container [UpgradeIPAM] has not
	// ended.
	Upgrades bool
	// AsksNetworks are the networks that the pod asks for (k8s.v1.cni.cncf.io/networks), as
	// "namespace/name"; empty if they cannot be parsed.
	AsksNetworks []string
}

// AskedNetworks parses the annotation k8s.v1.cni.cncf.io/networks of a pod: a JSON list of names and
// namespaces, or [NAMESPACE/]NAME[@INTERFACE] separated by commas. It returns each network with its
// namespace, and nil for a list that cannot be parsed.
func AskedNetworks(text, namespace string) (out []string) {
	var all []struct{ Name, Namespace string }
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "[") {
		if json.Unmarshal([]byte(text), &all) != nil {
			return nil
		}
	} else if text != "" {
		for one := range strings.SplitSeq(text, ",") {
			one, _, _ = strings.Cut(strings.TrimSpace(one), "@")
			all = append(all, struct{ Name, Namespace string }{Name: one})
		}
	}
	for _, n := range all {
		if !strings.Contains(n.Name, "/") {
			n.Name = cmp.Or(n.Namespace, namespace) + "/" + n.Name
		}
		out = append(out, n.Name)
	}
	return out
}

// SandboxHandle reports whether a handle is "NETWORK.CONTAINERID" of a sandbox, the format of
// Calico's CNI plugin (libcalico-go lib/backend/k8s/conversion, cni-plugin pkg/ipamplugin).
// Handles of all networks of one sandbox have the same suffix.
func SandboxHandle(handle, containerID string) bool {
	n := len(handle) - len(containerID)
	return containerID != "" && n > 1 && handle[n:] == containerID && handle[n-1] == '.'
}

// Lacks returns the networks that a pod asks for and that its network status lacks. Old releases of
// Multus write the name of the CNI configuration instead of the attachment's, so only their number
// counts there.
func (x *Extras) Lacks() (out []string) {
	if len(x.Interfaces) >= len(x.AsksNetworks) {
		return nil
	}
	left := slices.Clone(x.Interfaces)
	for _, name := range x.AsksNetworks {
		if i := slices.Index(left, name); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// Extras returns the rare attributes; the zero value if there are none.
func (w *Workload) Extras() Extras {
	if w.Extra == nil {
		return Extras{}
	}
	return *w.Extra
}

// Extend returns the rare attributes for writing, and allocates them if necessary.
func (w *Workload) Extend() *Extras {
	if w.Extra == nil {
		w.Extra = &Extras{}
	}
	return w.Extra
}

// Key identifies the pod among all pods.
func (w *Workload) Key() Key { return Key{w.Namespace, w.Name} }

// FullName returns "namespace/name".
func (w *Workload) FullName() string { return w.Namespace + "/" + w.Name }

// Finished reports whether the pod will not use its addresses again: its phase is Succeeded
// or Failed, or it is being deleted and Calico has removed its network (libcalico-go
// backend/k8s/conversion, IsFinished).
func (w *Workload) Finished() bool {
	return w.Ended() || !w.Deleting.IsZero() && w.NetworkRemoved
}

// Ended reports whether the pod's phase is Succeeded or Failed.
func (w *Workload) Ended() bool {
	return w.Phase == "Succeeded" || w.Phase == "Failed" || w.Phase == "Completed"
}

// EndedAt returns when a finished pod ended, as far as its status shows; otherwise when it was
// started or created.
func (w *Workload) EndedAt() Time { return w.Extras().Ended.Later(w.Started).Later(w.Created) }

// Live reports whether the pod uses the pod network and is not finished. A pod with an
// address but no node does not count: its spec could not be read, and it may use the host
// network.
func (w *Workload) Live() bool {
	specUnread := w.Node == "" && len(w.StatusIPs)+len(w.AnnotationIPs) > 0
	return !w.HostNetwork && !specUnread && !w.Finished() && w.Extras().Partial == ""
}

// MayBeLive is true for a live pod, and for a pod with a field that could not be parsed. Such a pod
// keeps the addresses that it names, but no finding is made about them.
func (w *Workload) MayBeLive() bool {
	return w.Live() || w.Extras().Partial != "" && !w.Finished()
}

// HasFamily reports whether the pod has an address of a family, in its status or
// annotations.
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

// CalicoNode reports whether the pod is calico-node's, without flannel or with it (Canal).
func (w *Workload) CalicoNode() bool {
	return w.HostNetwork && w.OfDaemonSet() && (strings.HasPrefix(w.Controller.Name, calicoNode) || w.Canal())
}

// Canal reports whether the pod is of a DaemonSet of Canal, which runs calico-node beside flannel.
func (w *Workload) Canal() bool {
	return w.OfDaemonSet() && strings.HasSuffix(w.Controller.Name, "canal")
}

// Waiting reports whether a live pod is bound to a node, Pending, not being deleted, and
// still without an address.
func (w *Workload) Waiting() bool {
	return w.Live() && w.Node != "" && w.Phase == "Pending" && w.Deleting.IsZero() &&
		len(w.StatusIPs) == 0 && len(w.AnnotationIPs) == 0
}

// Addresses yields each address of the pod once, those of its status first.
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

// Environment variables of calico-node. Those of Felix override the FelixConfiguration. The CIDRs
// are those of the pools that calico-node creates if no pool exists (node/pkg/lifecycle/startup).
const (
	FelixVXLANPort = "FELIX_VXLANPORT"
	FelixVXLANVNI  = "FELIX_VXLANVNI"
	FelixVXLAN     = "FELIX_VXLANENABLED"
	FelixIPIP      = "FELIX_IPINIPENABLED"
	DetectIPv4     = "IP_AUTODETECTION_METHOD"
	DetectIPv6     = "IP6_AUTODETECTION_METHOD"
	PoolCIDRv4     = "CALICO_IPV4POOL_CIDR"
	PoolCIDRv6     = "CALICO_IPV6POOL_CIDR"
)

// UpgradeIPAM is the init container of calico-node that moves host-local's records into blocks. It
// locks the datastore meanwhile (cni-plugin pkg/upgrade).
const UpgradeIPAM = "upgrade-ipam"
