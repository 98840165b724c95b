// Package waiting explains why pods wait for an address although addresses are left: the address
// that a pod asks for is held, Calico rejects its request, its node is not ready for pods, or the
// node's CNI configuration names a pool that assigns nothing. A lack of blocks or addresses is a
// verdict on nodes and pools (package state).
package waiting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Kind is the kind of a cause.
type Kind string

// The kinds of causes, the likeliest first.
const (
	// Taken: the requested address (ipAddrs) is allocated to another owner.
	Taken Kind = "taken"
	// Own: the requested address is allocated to the pod's own name, by an earlier sandbox or an earlier pod.
	Own Kind = "own"
	// Migration: the requested address is the virtual machine's, which migrates from another pod.
	Migration Kind = "migration"
	// Request: Calico rejects the pools or addresses that the pod or its namespace requests.
	Request Kind = "request"
	// NoPool: no enabled pool serves pods, for a family that Calico assigns to every pod.
	NoPool Kind = "no-pool"
	// Node: calico-node or the kubelet does not work on the pod's node.
	Node Kind = "node"
	// Replaced: the node's calico-node pod is not Ready, and was created while the pod waited.
	Replaced Kind = "replaced"
	// Loopback: calico-node records a loopback address for the pod's node.
	Loopback Kind = "loopback"
	// Misfit: the taints or labels of the pod's node keep calico-node away.
	Misfit Kind = "misfit"
	// Unnamed: the pod's node runs Windows and has no Calico address.
	Unnamed Kind = "unnamed"
	// Unmigrated: the node's migration from flannel has not ended, and calico-node does not run there.
	Unmigrated Kind = "unmigrated"
	// SameAddress: calico-node does not start on the pod's node, because another node has its address.
	SameAddress Kind = "same-address"
	// SharedAddress: SameAddress, and both nodes are Ready, so both machines exist.
	SharedAddress Kind = "shared-address"
	// Unrecorded: pods of the node use addresses that Calico would assign again.
	Unrecorded Kind = "unrecorded"
	// Refused: the allocator has no address left for the pod once the other waiting pods are
	// served.
	Refused Kind = "refused"
	// Windows: the pod's node runs Windows, and strict affinity is off.
	Windows Kind = "windows"
	// HostBits: Calico does not find the requested pool, because the pool's CIDR has host bits set.
	HostBits Kind = "host-bits"
	// Pinned: the CNI configuration may name a pool that is disabled or was deleted.
	Pinned Kind = "pinned"
	// Secondary: the range of a secondary network is used up, and another sandbox of the pod holds
	// an address of it.
	Secondary Kind = "secondary"
	// Network: a network that the pod asks for does not exist.
	Network Kind = "network"
	// FullNetwork: the range of a network that the pod asks for has no address left.
	FullNetwork Kind = "full-network"
	// Unknown: the objects show no cause.
	Unknown Kind = "unknown"
)

// Cause is why a pod gets no address, as far as the objects show.
type Cause struct {
	Kind Kind
	// Object is the address, pool or node at fault; empty if there is none. Pods with equal Kind
	// and Object wait for the same reason.
	Object string
	// Text explains the cause, as the end of a sentence.
	Text string
	// Final is true if no retry can succeed before someone changes an object.
	Final bool
	// Known is the message in the kubelet's error, if no object shows the cause.
	Known *errortext.Message
	// Leaked is true if the owner of the requested address no longer exists.
	Leaked bool
	// Owner is the pod that has the requested address, or one of the network's, if that pod cannot end
	// by itself: it is terminating on a node that is not Ready.
	Owner *blocks.Workload
}

// Pod is a pod that waits for an address, and that no shortage of its node explains.
type Pod struct {
	*blocks.Workload
	// Since is when the kubelet accepted the pod or, if that is not recorded, when it was created.
	// Lasting is true if that is at least the grace ago.
	Since   blocks.Time
	Lasting bool
	// Causes are the possible causes, the likeliest first. There is at least one.
	Causes []Cause
	// Event is the kubelet's last error about the pod's network; nil if there is none, or if
	// Events may not be read.
	Event *blocks.SandboxEvent
	// Unread explains why the causes are not known; empty if they are.
	Unread string
}

// Final reports whether no retry can succeed.
func (p *Pod) Final() bool {
	return slices.ContainsFunc(p.Causes, func(c Cause) bool { return c.Final })
}

// Text joins the causes and quotes the CNI plugin's error, as the end of a sentence.
func (p *Pod) Text() string {
	texts := make([]string, len(p.Causes))
	for i, c := range p.Causes {
		texts[i] = c.Text
	}
	text := strings.Join(texts, "; or ")
	if e := p.PluginError(); e != "" {
		text += fmt.Sprintf(" (CNI plugin: %s)", e)
	}
	return text
}

// Pods are the pods that wait, in order.
type Pods struct {
	All []*Pod
	// Unread explains why no pod was evaluated; empty if all were.
	Unread string
}

// Reads are the reads that every verdict requires. If other reads of a simulation (capacity.Reads)
// are missing, only requests that cannot succeed have a verdict.
var Reads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods, blocks.Namespaces}

// Of returns the waiting pods of a state that no shortage of their node explains. While the
// datastore is locked there are none: the lock explains why pods wait.
func Of(st *state.State) *Pods { return state.Derived(st, evaluate) }

// Find returns the verdict on a pod; nil if it does not wait, or if a shortage explains it.
func (p *Pods) Find(w *blocks.Workload) *Pod {
	if i := slices.IndexFunc(p.All, func(o *Pod) bool { return o.Workload == w }); i >= 0 {
		return p.All[i]
	}
	return nil
}
