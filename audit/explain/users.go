package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

// useReads are the reads needed to know whether an address is in use.
var useReads = []blocks.Resource{blocks.Nodes, blocks.Pods}

// user is an object that names an address as its own.
type user struct {
	// what names the user, such as "pod shop/web"; where is its node.
	what, where string
	// how describes how it names the address; source is the object that does.
	how, source string
	// past is true for a pod that will not use the address again.
	past bool
}

// describe formats users for a sentence.
func describe(users []user) blocks.Names {
	out := make([]string, len(users))
	for i, u := range users {
		out[i] = u.what + phrase.OnNode(u.where)
		if u.past {
			out[i] += ", which is finished"
		}
	}
	return out
}

// allPast reports whether there are users, and all of them are past.
func allPast(users []user) bool {
	return len(users) > 0 && !slices.ContainsFunc(users, func(u user) bool { return !u.past })
}

// usersOf returns the objects that name an address: tunnels and nodes first, then pods, live ones
// first.
func (x *explainer) usersOf(a netip.Addr) (out []user) {
	for _, t := range x.TunnelsAt(a) {
		out = append(out, user{
			what: "the " + tunnelName(t.Type) + " of node " + t.Node.Name,
			how:  "the node's annotations give its " + tunnelName(t.Type) + " this address", source: nodeSource(t.Node),
		})
	}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if slices.ContainsFunc(n.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			out = append(out, user{what: "node " + n.Name + " itself", how: "the node's own address, by which Calico reaches it", source: nodeSource(n)})
		}
	}
	var past []user
	hosts := 0
	for _, w := range x.Users(a) {
		u := user{what: "pod " + w.FullName(), where: w.Node, how: podClaim(w, a), source: podSource(w), past: w.Finished()}
		switch {
		case u.past:
			past = append(past, u)
		case w.HostNetwork:
			if hosts++; hosts <= 1 {
				u.what, u.how = "the host network of "+phrase.OrNone(w.Node), "pods on the host's network have it, such as "+w.FullName()
				u.where = ""
				out = append(out, u)
			}
		default:
			out = append(out, u)
		}
	}
	return append(out, past...)
}

// podClaim describes where a pod names an address, and the pod's state.
func podClaim(w *blocks.Workload, a netip.Addr) string {
	status, annotation := slices.Contains(w.StatusIPs, a), slices.Contains(w.AnnotationIPs, a)
	where := "in its status"
	switch {
	case status && annotation:
		where = "in its status and in Calico's annotation"
	case annotation:
		where = "in Calico's annotation, and not in its status"
		if len(w.StatusIPs) > 0 && w.Live() { // Calico prefers the status (libcalico-go lib/backend/k8s/conversion, getPodIPs)
			where += ", so Felix programs no route to it"
		}
	case !status:
		where = "for a secondary interface, only in the annotation k8s.v1.cni.cncf.io/network-status"
	}
	return where + "; " + podState(w)
}

// podState describes a pod's state, such as "Running on n1 since …".
func podState(w *blocks.Workload) string {
	out := w.Phase
	if out == "" {
		out = "without a phase"
	}
	if w.Node == "" {
		out += ", not bound to a node"
	}
	out += phrase.OnNode(w.Node) + since(w.Started)
	if !w.Deleting.IsZero() {
		out += ", being deleted since " + w.Deleting.String()
	}
	if w.NetworkRemoved {
		out += ", its network taken down"
	}
	return out
}

// usedBySection lists the objects that name an address, the state of the objects that its
// allocation names, and the resulting verdict.
func (x *explainer) usedBySection(s *builder, a netip.Addr, users []user, ref state.AllocationRef, allocated bool) {
	s.section("Used by")
	for _, u := range users {
		s.fact(u.source, strings.TrimPrefix(u.what, "the "), u.how)
	}
	attr := ref.AttributesIf(allocated)
	if attr != nil {
		x.namedByAllocation(s, a, ref, attr)
	}
	if g := x.FirstMissing(useReads); g != nil {
		s.fact("", "not known", g)
	} else if len(users) == 0 && !x.mayName(attr) && (!allocated || !slices.Contains(podless, state.UseKindOf(ref.Block, attr))) {
		s.fact("", "none", "no pod and no node names it")
		// Felix masquerades no traffic to addresses in pools (felix/rules/nat.go); projectcalico/calico#7345.
		if p := x.PoolOf(state.IPPrefix(a)); p != nil && !allocated && slices.ContainsFunc(x.Pools, func(q *state.Pool) bool { return q.NATOutgoing && q.Family() == p.Family() }) {
			s.fact(poolSource(p), "outgoing NAT", "none for pods' traffic to it, because it lies in a pool: a machine outside the cluster with this address sees the pods' own addresses, and needs a route to them")
		}
	}
	if attr != nil && x.FirstMissing(useReads) == nil {
		v := x.Classify(ref)
		s.fact("", "verdict", verdictText(v))
		if node := state.NodeOf(attr); len(users) == 0 && v.Owned && attr.Tunnel() && x.Vanished(node) {
			s.fact("", "if the machine is off", remedies.Shell("calico-audit repair --leaked-ips --terminated %s", node))
		}
		if v.Young {
			s.fact("", "leaked from", x.Due(state.AssignedAt(ref)))
		}
		if !v.Owned {
			s.fact("", "Calico's collector", collector.OfAddress(x.State, ref).Text(""))
		}
	}
}

// verdictText is the verdict on an allocation, with its reason.
func verdictText(v state.Validity) string {
	switch {
	case strings.HasPrefix(v.Why(), "not evaluated"):
		return v.Why()
	case v.Unknown:
		return "owner not known: " + v.Why()
	case v.Owned:
		return "owned: " + v.Why()
	}
	return "nothing seems to own it: " + v.Why()
}

// mayName reports whether the pod that an allocation names has a field that cannot be parsed, and so
// may name the address.
func (x *explainer) mayName(attr *blocks.Attributes) bool {
	if attr == nil {
		return false
	}
	w := x.Pod(attr.Namespace, attr.Pod)
	return w != nil && w.Extras().Unreadable != ""
}

// podless are the kinds of use that neither pods nor nodes name.
var podless = []state.UseKind{state.UseService, state.UseCooling, state.UseWindows}

// namedByAllocation describes the pod or node that an allocation names, if that object does not
// name the address itself.
func (x *explainer) namedByAllocation(s *builder, a netip.Addr, ref state.AllocationRef, attr *blocks.Attributes) {
	sort := state.UseKindOf(ref.Block, attr)
	if sort == state.UseVM {
		x.namedVM(s, attr)
	}
	kind, node := attr.TunnelOf()
	switch {
	case sort == state.UseTunnel && len(x.TunnelsAt(a)) == 0 && node != "":
		if n := x.nodeNamed(node); n != nil {
			s.factf(nodeSource(n), "node "+node, "the allocation names its %s; the node's annotations do not name the address", tunnelName(kind))
		} else {
			s.factf("", "node "+node, "the allocation names its %s; %s", tunnelName(kind), x.NoNode(node))
		}
	case attr.Pod != "" && !slices.ContainsFunc(x.Users(a), func(w *blocks.Workload) bool { return w.Name == attr.Pod && w.Namespace == attr.Namespace }):
		name := "pod " + attr.Namespace + "/" + attr.Pod
		if w := x.Pod(attr.Namespace, attr.Pod); x.mayName(attr) {
			s.factf(podSource(w), name, "the allocation names it, and its %s cannot be read", w.Extras().Unreadable)
		} else if w != nil {
			s.factf(podSource(w), name, "the allocation names it, but its own objects do not name the address: %s; %s", podState(w), podAddresses(w))
		} else if x.unread(blocks.Pods) == "" {
			s.fact("", name, "the allocation names it, but no such pod exists")
		}
	case sort == state.UseService:
		name := blocks.Key{Namespace: attr.Namespace, Name: attr.Extras().Service}
		if slices.ContainsFunc(x.Services, func(o blocks.Service) bool { return o.Key() == name }) {
			s.fact(blockSource(ref.Block), "service", "the allocation is for LoadBalancer service "+name.String()+", which exists")
			return
		}
		s.fact(blockSource(ref.Block), "service", "the allocation is for a LoadBalancer service; services are not read")
	}
}

// namedVM describes the state of the virtual machine that an allocation is for.
func (x *explainer) namedVM(s *builder, attr *blocks.Attributes) {
	namespace, name, _ := attr.VMOf()
	if name == "" {
		s.fact("", "virtual machine", "the allocation is for a virtual machine, but does not name it")
		return
	}
	what := "virtual machine " + namespace + "/" + name
	exists := blocks.HasVM(x.VMs, namespace, name)
	runs := blocks.HasVM(x.VMInstances, namespace, name)
	switch {
	case !x.VMsKnown:
		s.fact("", what, "the allocation names it; virtual machines were not read completely")
	case exists && runs:
		s.fact("virtualmachine/"+namespace+"/"+name, what, "the allocation names it, and it runs")
	case exists:
		s.fact("virtualmachine/"+namespace+"/"+name, what, "the allocation names it; it exists, but is stopped")
	case runs:
		s.fact("virtualmachineinstance/"+namespace+"/"+name, what, "the allocation names it; only an instance exists, without a VirtualMachine")
	default:
		s.fact("", what, "the allocation names it, but neither it nor an instance exists")
	}
	if alt := attr.Extras().Alternate; alt != nil {
		s.factf("", "alternate owner", "pod %s%s, which takes the address over when the migration ends", alt.Namespace+"/"+alt.Pod, phrase.OnNode(alt.Node))
	}
}

// podAddresses lists the addresses of a pod for a sentence.
func podAddresses(w *blocks.Workload) string {
	var out blocks.Names
	for a := range w.Addresses {
		out = append(out, a.String())
	}
	if len(out) == 0 {
		return "it has no address yet"
	}
	return "it has " + out.String()
}

// nodeNamed returns a node that exists, or nil.
func (x *explainer) nodeNamed(name string) *blocks.Node {
	if h := x.NodeState(name); h != nil {
		return h.Node
	}
	return nil
}
