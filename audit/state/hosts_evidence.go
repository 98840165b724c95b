package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// HostVerdict is what host views say of an allocated address.
type HostVerdict int

// The verdicts.
const (
	// HostUnknown: no view proves anything. It is the zero value.
	HostUnknown HostVerdict = iota
	// HostShowsInUse: a view shows the address in a network namespace.
	HostShowsInUse
	// HostShowsFree: a view of the allocation's own node proves that it does not use
	// the address.
	HostShowsFree
)

// HostEvidence is what host views say of one allocation, and how better evidence is
// given.
type HostEvidence struct {
	Verdict HostVerdict
	// Node is the allocation's own node, by its attributes or by a tunnel's handle;
	// empty where neither names one.
	Node string
	// Uses are where views show the address, those that prove it first.
	Uses []HostUse
	// Reason is the verdict in one sentence, without an end.
	Reason string
	// Renew says how evidence is given that would decide; empty where the verdict is
	// proven, or where no host view can decide.
	Renew string
}

// HostEvidence says what host views prove of an allocation. A view that shows the
// address holds it, of whatever machine it is, in whatever namespace, however old and
// however it came here. That nothing uses the address is proved only by a view that is
//
//   - of the allocation's own node;
//   - not older than 10 minutes by the clock of the reading, and taken so long after
//     the address was assigned (where that is not known, after the block's last write)
//     that its owner must have set it up;
//   - complete in its namespaces (see [blocks.HostView.NamespacesComplete]);
//   - authenticated, so that no one but the operator or the node can have said it.
//
// Addresses of virtual machines are never proved free: one that is bridged has its
// address within the machine, and no network namespace shows it.
func (st *State) HostEvidence(r AllocationRef) HostEvidence {
	attr := r.Attributes()
	if attr == nil {
		return HostEvidence{Reason: "its block contradicts itself, so that it is not known what the allocation is for"}
	}
	e := HostEvidence{}
	if e.Node = NodeOf(attr); e.Node == "" {
		e.Reason = "the allocation names no node, so that no host view can tell"
	}
	if held := st.HostUses(r.Addr()); len(held) > 0 {
		return st.inUse(e, r, held)
	}
	switch {
	case e.Node == "":
		return e
	case ofVirtualMachine(attr):
		e.Reason = "it is the address of a virtual machine, which may have it without any network namespace showing it"
		return e
	}
	e.Renew = renewCommand(e.Node)
	best := -1
	for _, k := range st.views.all {
		if k.Node != e.Node {
			continue
		}
		lack, how := st.lackOf(k, r)
		if lack == proofWhole {
			return HostEvidence{
				Verdict: HostShowsFree, Node: e.Node,
				Reason: fmt.Sprintf("the host view of %s (%s) is complete and does not show it", k.Node, k.Text()),
			}
		}
		if lack > best {
			best, e.Reason = lack, fmt.Sprintf("the host view of %s (%s) does not tell: %s", k.Node, k.Text(), how)
		}
	}
	if best < 0 {
		e.Reason = "there is no host view of node " + e.Node + st.whyNoView(e.Node)
	}
	return e
}

// inUse is the verdict on an address that views show.
func (st *State) inUse(e HostEvidence, r AllocationRef, held []HostUse) HostEvidence {
	e.Verdict = HostShowsInUse
	since := AssignedAt(r)
	proves := func(u HostUse) bool { return st.newEnough(u.View, since) }
	held = slices.Clone(held)
	slices.SortStableFunc(held, func(a, b HostUse) int {
		switch {
		case proves(a) == proves(b):
			return 0
		case proves(a):
			return -1
		}
		return 1
	})
	e.Uses = append(e.Uses, held...)
	first := held[0]
	e.Reason = fmt.Sprintf("it is in use in %s (%s)", NamespaceText(first.View.Node, first.Namespace), first.View.Text())
	if !proves(first) {
		e.Renew = renewCommand(first.View.Node)
		e.Reason = fmt.Sprintf("it was in use in %s (%s), and that host view is too old to tell whether it still is", NamespaceText(first.View.Node, first.Namespace), first.View.Text())
	}
	return e
}

// What a view lacks to prove that an address is not in use, the more that is
// lacking the smaller.
const (
	lacksNamespaces = iota
	lacksTime
	lacksCompleteness
	lacksAuthentication
	proofWhole
)

// setUp is how long after its assignment an address may first appear in a network
// namespace: Calico's CNI plugin assigns it before it configures the interface, and
// gives up after 90 s (cni-plugin pkg/ipamplugin).
const setUp = 2 * time.Minute

// lackOf says what a view lacks to prove that an allocation's address is not in use.
func (st *State) lackOf(k *NodeView, r AllocationRef) (lack int, how string) {
	since := AssignedAt(r)
	if since.IsZero() {
		since = st.Cluster.TakenAt
	}
	switch {
	case !k.RulesKnown:
		return lacksNamespaces, "it lists routes alone, and no network namespaces"
	case k.Doubt == "" && st.Cluster.TakenAt.Sub(k.TakenAt) > viewLife:
		return lacksTime, "it was taken more than 10 minutes before the cluster was read, at " + phrase.Time(st.Cluster.TakenAt)
	case k.useless != "":
		return lacksTime, strings.TrimSuffix(k.useless, ", and proves nothing")
	case k.TakenAt.Before(since.Add(min(setUp, st.Grace))):
		return lacksTime, "it is not newer than the allocation, of " + phrase.Time(since) + ", by as much as it takes to set up a pod's network"
	case !k.NamespacesComplete && k.NamespacesGap != "":
		return lacksCompleteness, "its network namespaces may not be all: " + k.NamespacesGap
	case !k.NamespacesComplete:
		return lacksCompleteness, "it does not say that its network namespaces are all"
	case !k.Authenticated:
		return lacksAuthentication, "it was fetched from the agent over a connection that does not prove who answered, and such a view may refuse a repair but never allow one"
	}
	return proofWhole, ""
}

// whyNoView says why there is no view of a node, where that is known.
func (st *State) whyNoView(node string) string {
	for _, g := range st.views.gaps {
		if g.Node == node {
			return " (" + g.Reason + ")"
		}
	}
	return ""
}

// renewCommand says how a view is made that proves something.
func renewCommand(node string) string {
	return fmt.Sprintf("run \"calico-audit agent --once --node %[1]s -o json > %[1]s.json\" on %[1]s and name the file with --host-views", phrase.Arg(node))
}

// ofVirtualMachine reports whether a virtual machine may have the address of an
// allocation, by Calico's attributes and handle or, before Calico knew of them, by
// the name that KubeVirt gives the machine's pod.
func ofVirtualMachine(attr *blocks.Attributes) bool {
	_, _, vm := attr.VMOf()
	return vm || attr.Alternate != nil || strings.HasPrefix(attr.Pod, "virt-launcher-")
}

// MachineOff reports whether there is evidence that a node's machine is off, so that
// nothing on it uses any address, and says what speaks for it or why nothing does.
// Evidence is the taint node.kubernetes.io/out-of-service on a node that is not
// Ready, or that the operator says so ([State.WithTerminated]), which counts as long as
// the node is not Ready. That a Node object is gone or NotReady says
// that its kubelet is not heard, and nothing about its containers.
func (st *State) MachineOff(node string) (off bool, why string) {
	named := slices.Contains(st.terminated, node)
	h := st.nodeStates[node]
	switch {
	case node == "":
		return false, "no node is named"
	case !st.NodesRead() || st.UnreadableNode(node):
		return false, fmt.Sprintf("node %s could not be read", node)
	case h == nil || h.Node == nil:
		if named {
			return true, fmt.Sprintf("node %s no longer exists, and you say that its machine is off (--terminated)", node)
		}
		return false, fmt.Sprintf("node %s no longer exists, which does not tell that its machine is off", node)
	case h.Node.Ready:
		return false, fmt.Sprintf("node %s is Ready", node)
	case named:
		return true, fmt.Sprintf("node %s is not Ready, and you say that its machine is off (--terminated)", node)
	case h.Node.OutOfService:
		return true, fmt.Sprintf("node %s is not Ready and has the taint node.kubernetes.io/out-of-service", node)
	case h.Node.NotReady:
		return false, fmt.Sprintf("node %s is not Ready, which does not tell that its machine is off", node)
	}
	return false, fmt.Sprintf("nothing says that the machine of node %s is off", node)
}

// WithTerminated returns the state as it is judged on somebody's word that the machines
// of some nodes are off.
func (st *State) WithTerminated(nodes []string) *State {
	if len(nodes) == 0 {
		return st
	}
	out := *st
	out.terminated = nodes
	return &out
}

// MachineMayRun reports whether a node does not answer for its machine: its object is
// gone, or it is NotReady. What ran on it may run on.
func (st *State) MachineMayRun(node string) bool {
	h := st.nodeStates[node]
	return st.NodesRead() && (st.Vanished(node) || h != nil && h.Node != nil && !h.Node.Ready)
}

// EachAllocation calls fn for each allocated address with its own node, which is empty
// where the allocation names none. Blocks that contradict themselves are left out.
func (st *State) EachAllocation(fn func(r AllocationRef, node string)) {
	for _, b := range st.IPBlocks {
		for i, o := range b.Ordinals {
			r := AllocationRef{b, i}
			if attr := r.Attributes(); o != blocks.Free && len(b.Faults) == 0 && attr != nil {
				fn(r, NodeOf(attr))
			}
		}
	}
}
