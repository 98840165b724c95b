package audit

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// tunnelUse is an address that a node says its tunnel device has.
type tunnelUse struct {
	node *blocks.Node
	kind string
}

func (st *State) indexTunnels() {
	st.tunnels = map[netip.Addr][]tunnelUse{}
	for i := range st.Nodes {
		for _, t := range st.Nodes[i].Tunnels {
			st.tunnels[t.Addr] = append(st.tunnels[t.Addr], tunnelUse{&st.Nodes[i], t.Type})
		}
	}
	st.tunnelAddrs = slices.SortedFunc(maps.Keys(st.tunnels), netip.Addr.Compare)
}

// Validity says whether an allocation is owned by something, and by what
// evidence.
type Validity struct {
	// Owned is true if anything at all speaks for the allocation.
	Owned bool
	// Why is the evidence for or against.
	Why string
	// Young is true if the allocation counts as owned only because it is younger
	// than the grace, Shared if only because of another address of its handle.
	Young, Shared bool
}

// Judge says whether anything owns an allocation. It is proved by any source and
// disproved only by all: a pod that names the address, the pod that the
// allocation names as long as its network may be in the making or in the
// taking down, a tunnel of a node that exists, a service, Windows, a cooldown,
// a younger age than the grace. All addresses of a handle stand or fall
// together, as they do in Calico's own collector (kube-controllers
// pkg/controllers/node/ipam.go).
func (st *State) Judge(r AllocationRef) Validity {
	v := st.judgeAddress(r)
	attr := r.Attributes()
	if v.Owned || attr == nil || attr.Handle == "" {
		return v
	}
	for _, other := range st.HandleRefs(attr.Handle) {
		if other == r {
			continue
		}
		if o := st.judgeAddress(other); o.Owned {
			return Validity{Owned: true, Why: "its handle also holds " + other.Addr().String() + ": " + o.Why, Shared: true}
		}
	}
	return v
}

func (st *State) judgeAddress(r AllocationRef) Validity {
	attr, addr := r.Attributes(), r.Addr()
	owned := func(why string) Validity { return Validity{Owned: true, Why: why} }
	switch {
	case attr == nil || len(r.Block.Faults) > 0:
		return owned("not judged: the block is corrupt")
	case attr.Cooling():
		return owned("it was released and waits out its cooldown")
	case attr.WindowsReserved():
		return owned("a Windows node keeps it back")
	case r.Block.Owner.Kind == blocks.VirtualOwner || attr.Type == blocks.TypeLoadBalancer || attr.Service != "":
		return owned("it serves a LoadBalancer service")
	case len(st.tunnels[addr]) > 0:
		return owned("tunnel address of node " + st.tunnels[addr][0].node.Name)
	}
	if users := st.Users(addr); len(users) > 0 {
		return owned("pod " + users[0].FullName() + " names it")
	}
	if node, tunnel := tunnelNode(attr); tunnel {
		if st.vanished(node) {
			return Validity{Why: "it is a tunnel address of " + node + ", which is no node"}
		}
		return owned("tunnel address of node " + node)
	}
	if name, unread := st.podUnread(); unread {
		return owned("not judged: pod " + name + " could not be read, and may name it")
	}
	if w := st.Pod(attr.Namespace, attr.Pod); w != nil {
		if st.mayStillUse(w) {
			return owned("pod " + w.FullName() + " is starting or ending")
		}
		return st.young(r, "pod "+w.FullName()+" has another address")
	}
	if attr.Pod == "" {
		return st.young(r, "it names neither a pod nor a tunnel")
	}
	return st.young(r, "no pod "+attr.Namespace+"/"+attr.Pod+" exists")
}

// mayStillUse tells whether a pod may use an address that it does not name: its
// network is not up yet or not down yet, or its status tells nothing.
func (st *State) mayStillUse(w *blocks.Workload) bool {
	return w.Phase == "Pending" || !w.Deleting.IsZero() || len(w.StatusIPs) == 0
}

// young leaves an allocation alone that is younger than the grace: its pod may
// have been made after pods were read.
func (st *State) young(r AllocationRef, why string) Validity {
	at := assignedAt(r)
	if !st.settled(at) {
		return Validity{Owned: true, Why: why + ", but it was assigned only at " + FormatTime(at), Young: true}
	}
	return Validity{Why: why}
}

// assignedAt returns when an address was assigned, as far as is known: where the
// allocation does not say, it is not older than its block.
func assignedAt(r AllocationRef) time.Time {
	at := r.Attributes().Assigned
	if !at.IsZero() {
		return at
	}
	for _, t := range []time.Time{r.Block.Created, r.Block.Claimed, r.Block.Written} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// Pod returns a pod by namespace and name, or nil.
func (st *State) Pod(namespace, name string) *blocks.Workload {
	i, ok := slices.BinarySearchFunc(st.Workloads, [2]string{namespace, name}, func(w blocks.Workload, k [2]string) int {
		if c := strings.Compare(w.Namespace, k[0]); c != 0 {
			return c
		}
		return strings.Compare(w.Name, k[1])
	})
	if !ok || name == "" {
		return nil
	}
	return &st.Workloads[i]
}

// podUnread returns a pod that could not be understood at all. It may name any
// address.
func (st *State) podUnread() (string, bool) {
	for _, g := range st.Unreadable(blocks.Pods) {
		namespace, name, _ := strings.Cut(g.Name, "/")
		if st.Pod(namespace, name) == nil {
			return g.Name, true
		}
	}
	return "", false
}

// tunnelHandle is what the handles of tunnel addresses have before the node's
// name (node/pkg/allocateip/allocateip.go).
var tunnelHandle = regexp.MustCompile(`^(?:ipip|vxlan|vxlan-v6|wireguard|wireguard-v6)-tunnel-addr-(.+)$`)

// tunnelNode returns the node whose tunnel an allocation is for, by its type or
// its handle.
func tunnelNode(attr *blocks.Attributes) (node string, tunnel bool) {
	m := tunnelHandle.FindStringSubmatch(attr.Handle)
	switch {
	case attr.Node != "" && (attr.Tunnel() || m != nil):
		return attr.Node, true
	case m != nil:
		return m[1], true
	}
	return attr.Node, attr.Tunnel()
}
