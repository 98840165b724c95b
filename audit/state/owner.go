package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Validity says whether an allocation is owned by something, and by what evidence.
type Validity struct {
	// Owned is true if anything at all speaks for the allocation, and if no one could
	// look its owner up: only a false Owned is a leak.
	Owned bool
	// Unknown is true if the allocation names no owner that can be looked up. It counts
	// as owned.
	Unknown bool
	// Young is true if the allocation counts as owned only because it is younger
	// than the grace, Shared if only because of another address of its handle.
	Young, Shared bool

	why string
	// pod names the address; nearly all have one, and no one asks why.
	pod *blocks.Workload
}

// Why is the evidence for or against.
func (v Validity) Why() string {
	if v.pod != nil {
		return "pod " + v.pod.FullName() + " names it"
	}
	return v.why
}

func owned(format string, args ...any) Validity {
	return Validity{Owned: true, why: fmt.Sprintf(format, args...)}
}

func unknownOwner(format string, args ...any) Validity {
	return Validity{Owned: true, Unknown: true, why: fmt.Sprintf(format, args...)}
}

// maxShared is how many addresses of one handle are evaluated together. A pod has a few;
// of thousands under one handle, in damaged data, nothing is believed.
const maxShared = 1024

// Classify says whether anything owns an allocation. It is proved by any source and
// disproved only by all: Windows, a cooldown, a service, a tunnel of a node that
// exists or whose machine may run, a virtual machine, running or not, a pod that
// names the address, the pod that the allocation names as long as its network may be
// in the making or in the taking down, a younger age than the grace. What names no
// owner of these kinds has one that no one can look up. All addresses of a handle
// stand or fall together, as they do in Calico's own collector (kube-controllers
// pkg/controllers/node/ipam.go).
func (st *State) Classify(r AllocationRef) Validity {
	v := st.classifyAddress(r)
	attr := r.Attributes()
	if v.Owned || attr == nil || attr.Handle == "" {
		return v
	}
	if h := st.Handle(attr.Handle); h == nil && len(st.Unreadable(blocks.Blocks)) > 0 {
		return Validity{Owned: true, Shared: true, why: "not evaluated: a block that cannot be read may hold another address of its handle"}
	}
	refs := st.HandleRefs(attr.Handle)
	if len(refs) > maxShared {
		return Validity{Owned: true, Unknown: true, Shared: true, why: fmt.Sprintf("%d addresses share its handle, which are no one owner's", len(refs))}
	}
	for _, other := range refs {
		if other == r {
			continue
		}
		if o := st.classifyAddress(other); o.Owned {
			return Validity{Owned: true, Unknown: o.Unknown, Shared: true, why: "its handle also holds " + other.Addr().String() + ": " + o.Why()}
		}
	}
	return v
}

func (st *State) classifyAddress(r AllocationRef) Validity {
	attr := r.Attributes()
	switch {
	case attr == nil || len(r.Block.Faults) > 0:
		return owned("not evaluated: the block is corrupt")
	case r.Block.SoftDeleted:
		return owned("not evaluated: the block is marked deleted")
	}
	sort := r.Kind()
	switch sort {
	case UseCooling:
		return owned("it was released and waits out its cooldown")
	case UseWindows:
		return owned("a Windows node keeps it back")
	case UseService:
		return owned("it serves a LoadBalancer service")
	case UseUnknown, UsePod, UseTunnel, UseVM:
	}
	if t := st.tunnels[r.Addr()]; len(t) > 0 {
		return owned("tunnel address of node %s", t[0].Node.Name)
	}
	if users := namedBy(r.Block.uses, r.Addr()); len(users) > 0 {
		return Validity{Owned: true, pod: st.podOf(users[0])}
	}
	switch sort {
	case UseTunnel:
		return st.classifyTunnel(r)
	case UseVM:
		return st.classifyVM(r)
	case UsePod:
		return st.classifyPods(r)
	case UseUnknown, UseCooling, UseWindows, UseService:
	}
	if attr.Handle == "" {
		return unknownOwner("it has no handle and names neither a pod, a tunnel nor a virtual machine")
	}
	return unknownOwner("its handle %s names neither a pod, a tunnel nor a virtual machine", attr.Handle)
}

// Classified is an allocation with whether anything owns it.
type Classified struct {
	AllocationRef
	Validity
}

// Unowned returns the allocations that nothing owns, or whose owner no one can look up, in
// order.
func (st *State) Unowned() []Classified {
	return *Derived(st, func(st *State) *[]Classified {
		var out []Classified
		for r := range st.allocated() {
			if v := st.Classify(r); !v.Owned || v.Unknown {
				out = append(out, Classified{r, v})
			}
		}
		return &out
	})
}

// classifyTunnel evaluates a tunnel address that no node names. That the Node object is
// gone does not mean that its machine is off, and as long as that may run the tunnel
// may, too.
func (st *State) classifyTunnel(r AllocationRef) Validity {
	_, node := r.Attributes().TunnelOf()
	switch {
	case !st.Vanished(node):
		return owned("tunnel address of node %s", node)
	case st.nodeUses[node] != "":
		return owned("tunnel address of node %s, which no longer exists, but %s", node, st.nodeUses[node])
	}
	if off, why := st.MachineOff(node); !off {
		return owned("it is a tunnel address, and %s", why)
	}
	return st.young(r, fmt.Sprintf("it is a tunnel address of node %s, which no longer exists", node))
}

// classifyVM evaluates an address of a virtual machine that no pod names. A machine that
// exists owns its address, running or not (Calico v3.32, isVMAllocationValid of
// kube-controllers pkg/controllers/node/ipam.go).
func (st *State) classifyVM(r AllocationRef) Validity {
	attr := r.Attributes()
	if v, owned := st.ownedByNamedPods(r); owned {
		return v
	}
	namespace, name, _ := attr.VMOf()
	full := namespace + "/" + name
	switch {
	case name == "" && attr.Handle != "":
		return unknownOwner("it is a virtual machine's, and handle %s does not tell which", attr.Handle)
	case name == "":
		return unknownOwner("it is a virtual machine's, and its attributes do not tell which")
	case !st.VMsKnown:
		return unknownOwner("it is for virtual machine %s, and virtual machines were not read", full)
	case st.vmUnread:
		return unknownOwner("it is for virtual machine %s, and some virtual machines could not be read", full)
	}
	if HasVM(st.VMs, namespace, name) {
		return owned("virtual machine %s exists, and keeps it also while it is stopped", full)
	}
	// Calico gives up the address of an instance whose machine is gone (hasVMOwner). As
	// long as the instance exists, its guest may run.
	if HasVM(st.VMInstances, namespace, name) {
		return owned("virtual machine instance %s exists", full)
	}
	return st.young(r, fmt.Sprintf("no virtual machine %s exists, nor an instance of it", full))
}

// classifyPods evaluates an address whose allocation names a pod, and that no pod names.
func (st *State) classifyPods(r AllocationRef) Validity {
	if v, owned := st.ownedByNamedPods(r); owned {
		return v
	}
	attr := r.Attributes()
	if w := st.Pod(attr.Namespace, attr.Pod); w != nil {
		return st.young(r, "pod "+w.FullName()+" has another address")
	}
	return st.young(r, "no pod "+attr.Namespace+"/"+attr.Pod+" exists")
}

// ownedByNamedPods reports whether a pod that the allocation names may have the address
// though it does not name it itself: as owner, or as the alternate owner that a live
// migration makes.
func (st *State) ownedByNamedPods(r AllocationRef) (Validity, bool) {
	if name, unread := st.UnreadPod(); unread {
		return owned("not evaluated: pod %s could not be read, and may name it", name), true
	}
	attr := r.Attributes()
	for _, named := range []*blocks.Attributes{attr, attr.Extras().Alternate} {
		if named == nil {
			continue
		}
		w := st.Pod(named.Namespace, named.Pod)
		switch {
		case w == nil:
		case w.Extras().Unreadable != "":
			return owned("%s of pod %s cannot be parsed, and may name it", w.Extras().Unreadable, w.FullName()), true
		case mayStillUse(w):
			return owned("pod %s is starting or ending", w.FullName()), true
		case sandboxHandle(attr.Handle, w.ContainerID):
			return owned("the handle is that of the current sandbox of pod %s", w.FullName()), true
		case named != attr && w.Live():
			return owned("pod %s is the alternate owner, and takes it over when its migration ends", w.FullName()), true
		}
	}
	return Validity{}, false
}

// mayStillUse reports whether a pod may use an address that it does not name: its
// network is not up yet or not down yet, or its status tells nothing.
func mayStillUse(w *blocks.Workload) bool {
	return w.Phase == "Pending" || !w.Deleting.IsZero() || len(w.StatusIPs) == 0 || w.Extras().Partial != ""
}

// sandboxHandle reports whether a handle is "NETWORK.CONTAINERID" of a sandbox, as
// Calico's CNI plugin makes them (libcalico-go lib/backend/k8s/conversion,
// cni-plugin pkg/ipamplugin): the addresses of all networks of one sandbox end alike.
func sandboxHandle(handle, containerID string) bool {
	n := len(handle) - len(containerID)
	return containerID != "" && n > 1 && handle[n:] == containerID && handle[n-1] == '.'
}

// young leaves an allocation alone that is younger than the grace: its owner may
// have been made after owners were read.
func (st *State) young(r AllocationRef, why string) Validity {
	at := AssignedAt(r)
	if !st.PastGrace(at) {
		return Validity{Owned: true, why: why + ", but it was assigned only at " + phrase.Time(at), Young: true}
	}
	return Validity{why: why}
}

// HasVM reports whether a sorted list has a virtual machine.
func HasVM(list []blocks.VirtualMachine, namespace, name string) bool {
	_, found := slices.BinarySearchFunc(list, blocks.Key{Namespace: namespace, Name: name},
		func(v blocks.VirtualMachine, k blocks.Key) int { return v.Key().Compare(k) })
	return found
}

// UseKindOf says what kind of thing an allocation is for, by what it records. It is asked
// in the order in which owners are looked for: what is a tunnel's by its handle is no
// pod's, whatever else it names.
func UseKindOf(b *Block, attr *blocks.Attributes) UseKind {
	if attr == nil {
		return UseUnknown
	}
	kind, _ := attr.TunnelOf()
	_, _, isVM := attr.VMOf()
	switch {
	case attr.Cooling():
		return UseCooling
	case attr.WindowsReserved():
		return UseWindows
	case b.Owner.Kind == blocks.VirtualOwner, attr.Extras().Type == blocks.TypeLoadBalancer, attr.Extras().Service != "":
		return UseService
	case kind != "":
		return UseTunnel
	case isVM:
		return UseVM
	case attr.Pod != "" && attr.Namespace != "":
		return UsePod
	}
	return UseUnknown
}

// NodeOf returns the node that an allocation names, by its attributes or by a tunnel's
// handle; "" if neither does.
func NodeOf(attr *blocks.Attributes) string {
	_, tunnel := attr.TunnelOf()
	return cmp.Or(attr.Node, tunnel)
}

// indexVanished notes for each node that no longer exists, and that has a tunnel
// address, what else of it is still in use: a tunnel is given up last.
func (st *State) indexVanished() {
	st.nodeUses = map[string]string{}
	for r := range st.allocated() {
		if attr := r.Attributes(); attr != nil && attr.Tunnel() {
			if _, node := attr.TunnelOf(); st.Vanished(node) {
				st.nodeUses[node] = ""
			}
		}
	}
	if len(st.nodeUses) == 0 {
		return
	}
	note := func(node, what string) {
		if before, asked := st.nodeUses[node]; asked && before == "" {
			st.nodeUses[node] = what
		}
	}
	for _, w := range st.Workloads {
		if !w.Finished() {
			note(w.Node, "pod "+w.FullName()+" is still bound to it")
		}
	}
	for r := range st.allocated() {
		attr := r.Attributes()
		if attr == nil || attr.Tunnel() {
			continue
		}
		if before, asked := st.nodeUses[attr.Node]; !asked || before != "" {
			continue
		}
		if v := st.Classify(r); v.Owned {
			note(attr.Node, r.Addr().String()+" of it is still owned: "+v.Why())
		}
	}
}

// UseKind says what kind of thing an address is allocated to.
type UseKind int8

// The kinds of use.
const (
	// UseUnknown: the allocation does not say, or the block is corrupt.
	UseUnknown UseKind = iota
	UsePod
	UseTunnel
	UseService
	// UseWindows: a Windows node keeps the address back.
	UseWindows
	// UseVM: a KubeVirt virtual machine, running or not.
	UseVM
	// UseCooling: nothing; it was released, and waits out its cooldown.
	UseCooling
)
