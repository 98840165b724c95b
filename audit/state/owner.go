package state

import (
	"cmp"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// Validity is the verdict on whether an allocation has an owner, with the evidence.
type Validity struct {
	// Owned is true if any evidence supports the allocation, or if its owner cannot be looked up.
	// Only if Owned is false is the allocation leaked.
	Owned bool
	// Unknown is true if the owner of the allocation cannot be looked up. Owned is then true.
	Unknown bool
	// Young is true if the allocation counts as owned only because it is younger than the grace.
	// Shared is true if it does so only because of another address of its handle.
	Young, Shared bool

	why string
	// pod names the address. Nearly all addresses have one, so Why formats the text only when
	// asked.
	pod *blocks.Workload
}

// Why returns the evidence for or against ownership.
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
// thousands under one handle are damaged data, and prove nothing.
const maxShared = 1024

// Classify reports whether an allocation has an owner. Any single source proves it, and only all of
// them disprove it: Windows, a cooldown, a service, a virtual machine that exists (running or not),
// a tunnel of a node that exists or whose machine may run, a pod that names the address, the named
// pod while its network may be starting or stopping, or an age below the grace. An allocation that
// names no such owner has one that cannot be looked up. If one address of a handle is owned, all
// are, as in Calico's own collector (kube-controllers pkg/controllers/node/ipam.go).
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
		return Validity{Owned: true, Unknown: true, Shared: true, why: fmt.Sprintf("%d addresses share its handle, and no single owner has them all", len(refs))}
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
		return owned("it was released and is in its cooldown")
	case UseWindows:
		return owned("it is reserved by a Windows node")
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

// Classified is an allocation with its verdict of ownership.
type Classified struct {
	AllocationRef
	Validity
}

// Unowned returns the allocations without an owner, or whose owner cannot be looked up, in order.
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

// classifyTunnel evaluates a tunnel address that no node names. A deleted Node object does not
// prove that its machine is off, and the tunnel may run as long as the machine.
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

// classifyVM evaluates an address of a virtual machine that no pod names. A virtual machine that
// exists owns its address, running or not (Calico v3.32, isVMAllocationValid of kube-controllers
// pkg/controllers/node/ipam.go).
func (st *State) classifyVM(r AllocationRef) Validity {
	attr := r.Attributes()
	if v, owned := st.ownedByNamedPods(r); owned {
		return v
	}
	namespace, name, _ := attr.VMOf()
	full := namespace + "/" + name
	switch {
	case name == "" && attr.Handle != "":
		return unknownOwner("it belongs to a virtual machine, but handle %s does not name it", attr.Handle)
	case name == "":
		return unknownOwner("it belongs to a virtual machine, but its attributes do not name it")
	case !st.VMsKnown:
		return unknownOwner("it is for virtual machine %s, and virtual machines were not read completely", full)
	}
	if blocks.HasVM(st.VMs, namespace, name) {
		return owned("virtual machine %s exists, and keeps it also while it is stopped", full)
	}
	// Calico releases the address of an instance whose virtual machine was deleted (hasVMOwner),
	// but the guest may run as long as the instance exists.
	if blocks.HasVM(st.VMInstances, namespace, name) {
		return owned("virtual machine instance %s exists", full)
	}
	return st.young(r, fmt.Sprintf("no virtual machine %s exists, nor an instance of it", full))
}

// classifyPods evaluates an address that no pod names and whose allocation names a pod.
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

// ownedByNamedPods reports whether a pod that the allocation names may have the address although
// its object does not show it: the owner, or the alternate owner of a live migration.
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
		case len(w.StatusIPs) == 0 && st.LongFinished(w):
			return owned("pod %s is %s since %s, and its object still exists", w.FullName(), w.Phase, w.EndedAt()), true
		case MayStillUse(w):
			return owned("pod %s is starting or ending", w.FullName()), true
		case blocks.SandboxHandle(attr.Handle, w.ContainerID):
			return owned("the handle belongs to the current sandbox of pod %s", w.FullName()), true
		case named != attr && w.Live():
			return owned("pod %s is the alternate owner, and takes it over when its migration ends", w.FullName()), true
		}
	}
	return Validity{}, false
}

// LongFinished reports whether a pod has been Succeeded or Failed for at least the grace.
func (st *State) LongFinished(w *blocks.Workload) bool {
	return w.Ended() && w.Extras().Partial == "" && st.PastGrace(w.EndedAt())
}

// MayStillUse reports whether a pod may use an address that it does not name: its network is
// still starting or stopping, or its status is incomplete.
func MayStillUse(w *blocks.Workload) bool {
	return w.Phase == "Pending" || !w.Deleting.IsZero() || len(w.StatusIPs) == 0 || w.Extras().Partial != ""
}

// young treats an allocation younger than the grace as owned: its owner may have been created
// after owners were read.
func (st *State) young(r AllocationRef, why string) Validity {
	at := AssignedAt(r)
	if !st.PastGrace(at) {
		return Validity{Owned: true, why: why + ", but it was assigned only at " + at.String(), Young: true}
	}
	return Validity{why: why}
}

// UseKindOf returns the kind of use that an allocation records. The order of the checks matters: a
// tunnel's handle marks a tunnel address, even if the allocation names a pod, too.
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

// NodeOf returns the node that an allocation names in its attributes or in a tunnel's handle; ""
// if it names none.
func NodeOf(attr *blocks.Attributes) string {
	_, tunnel := attr.TunnelOf()
	return cmp.Or(attr.Node, tunnel)
}

// indexVanished records, for each deleted node with a tunnel address, another remaining use of the
// node, because the tunnel is released last.
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

// UseKind is the kind of use that an address is allocated to.
type UseKind int8

// Kinds of use.
const (
	// UseUnknown: the allocation names no use, or the block is corrupt.
	UseUnknown UseKind = iota
	UsePod
	UseTunnel
	UseService
	// UseWindows: reserved by a Windows node.
	UseWindows
	// UseVM: a KubeVirt virtual machine, running or not.
	UseVM
	// UseCooling: unused; the address was released and is in its cooldown.
	UseCooling
)
