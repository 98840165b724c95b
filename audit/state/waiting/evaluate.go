package waiting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// evaluation holds facts that several waiting pods share. Most are computed only if a pod waits.
type evaluation struct {
	*state.State
	refusals   func() refusals
	agents     func() map[string]*blocks.Workload
	unrecorded func() map[string]blocks.Names
	fullRanges func() blocks.Names
}

// refusals are the pods to which the allocator assigns no address, with the reasons. unknown
// explains why they are not known.
type refusals struct {
	why     map[*blocks.Workload]string
	unknown string
}

func evaluate(st *state.State) *Pods {
	out := &Pods{}
	if g := st.FirstMissing(append(slices.Clip(Reads), blocks.ClusterInfos)); g != nil {
		out.Unread = g.String()
		return out
	}
	if st.Info.Locked {
		return out
	}
	e := &evaluation{State: st, agents: sync.OnceValue(func() map[string]*blocks.Workload { return agents.Of(st) }), unrecorded: sync.OnceValue(func() map[string]blocks.Names { return unrecordedOf(st) }), fullRanges: sync.OnceValue(func() blocks.Names { return fullRangesOf(st) })}
	e.refusals = sync.OnceValue(func() (r refusals) {
		r.why, r.unknown = capacity.Refused(st)
		return r
	})
	for _, w := range st.Workloads {
		if !w.Waiting() {
			continue
		}
		h := st.NodeState(w.Node)
		if h == nil || h.Node == nil {
			continue
		}
		if !st.Assigned(w) { // only the kubelet knows why another IPAM assigns nothing
			if p := Seen(st, w); p.known() != nil {
				p.Causes, p.Lasting = []Cause{p.reported(h.Name)}, st.PastGrace(p.Since)
				out.All = append(out.All, p)
			}
			continue
		}
		if p := e.pod(w, h); p != nil {
			out.All = append(out.All, p)
		}
	}
	return out
}

// explained reports whether a shortage explains why a pod waits: it can get no address, or its
// node has no block and its pools have none left.
func explained(h *state.NodeState, w *blocks.Workload) bool {
	return slices.ContainsFunc(h.BlockStatus, func(n *state.NodeBlockStatus) bool {
		return n.NoBlock() && n.Cause.Shortfall() || slices.ContainsFunc(n.Stuck, func(s state.Stuck) bool { return s.Pod == w })
	})
}

// pod returns the verdict on a waiting pod; nil if a shortage explains why it waits.
func (e *evaluation) pod(w *blocks.Workload, h *state.NodeState) *Pod {
	p := Seen(e.State, w)
	// The kubelet of a Ready node accepts pods within seconds. A live pod that it has not accepted
	// was only just bound.
	bound := e.Cluster.Live && w.Started.IsZero() && h.Node.Ready
	p.Lasting = !bound && e.PastGrace(p.Since)
	if p.Causes = e.taken(w); len(p.Causes) > 0 {
		return p
	}
	if p.Unread = cmp.Or(e.MayBeServed(w), e.OtherIPAM().Unknown); p.Unread != "" {
		return p
	}
	if p.Causes = e.rejected(w, h); p.Final() {
		return p
	}
	if explained(h, w) {
		return nil
	}
	if g := e.FirstMissing(capacity.Reads); g != nil {
		p.Causes, p.Unread = nil, g.String()
		return p
	}
	if p.Causes = e.unstarted(p, h.Node); len(p.Causes) > 0 {
		return p
	}
	if len(e.Pools) == 0 && e.agents()[h.Name] == nil && len(e.Unreadable(blocks.Pods)) > 0 {
		p.Unread = e.Unreadable(blocks.Pods)[0].String() // it may be the node's calico-node
		return p
	}
	if p.Causes = e.noPool(p); p.Final() {
		return p
	}
	p.Causes = slices.Concat(p.Causes, e.hostBits(p), e.node(p, h.Node), e.inUse(h.Name))
	if !w.StaticAddress {
		r := e.refusals()
		if p.Unread = r.unknown; p.Unread != "" {
			return p
		}
		if why := r.why[w]; why != "" && h.Node.Windows && !e.IPAM.StrictAffinity {
			p.Causes = append(p.Causes, Cause{Kind: Windows, Text: "strict affinity is off, and on Windows nodes Calico assigns addresses only while it is on", Final: true})
		} else if why != "" {
			p.Causes = append(p.Causes, Cause{Kind: Refused, Object: h.Name, Text: "Calico's allocator has no address left for it: " + why})
		} else {
			p.Causes = append(p.Causes, e.pinned(p, h)...)
		}
	}
	if len(p.Causes) == 0 {
		p.Causes = e.secondary(w)
	}
	if len(p.Causes) == 0 {
		p.Causes = e.networks(w)
	}
	if len(p.Causes) == 0 {
		text := "the objects show no cause; the kubelet's events and the CNI plugin's log on " + h.Name + " do"
		switch {
		case p.known() != nil:
			p.Causes = []Cause{p.reported(h.Name)}
			return p
		case p.Event != nil:
			text = "the kubelet reports an error of the CNI plugin"
		case len(e.fullRanges()) > 0:
			text += "; or the pod asks for the network of Whereabouts pool " + e.fullRanges().String() + ", which has no address left"
		case w.HasClaim:
			text = "the objects show no cause; its volume may not be attached, which the kubelet waits for first"
		}
		p.Causes = []Cause{{Kind: Unknown, Object: h.Name, Text: text}}
	}
	return p
}

// reported returns the cause that the kubelet's event means; the error must be known.
func (p *Pod) reported(node string) Cause {
	known := p.known()
	return Cause{Kind: Unknown, Object: node + "/" + known.ID, Text: "the kubelet reports an error of the CNI plugin that means: " + strings.TrimSuffix(known.Means, "."), Known: known}
}

// secondary returns the Whereabouts pools that have no address left and record one for a former
// sandbox of the pod: each sandbox gets an address of its own (whereabouts#291).
func (e *evaluation) secondary(w *blocks.Workload) (out []Cause) {
	for _, a := range whereabouts.Of(e.State).Allocations {
		if usable, used, ok := a.Pool.Capacity(); a.Pod == w && (a.ContainerID == "" || a.ContainerID != w.ContainerID) && ok && used >= usable {
			out = append(out, Cause{Kind: Secondary, Object: a.Pool.FullName(), Text: fmt.Sprintf("Whereabouts pool %s has no address left, and records %s for another sandbox of the pod", a.Pool.FullName(), a.Addr)})
		}
	}
	return out
}

// fullRangesOf returns the Whereabouts pools that have no address left. It returns nil if pods name
// the networks that they ask for: then each pod's own networks decide.
func fullRangesOf(st *state.State) (out []string) {
	if slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { return len(w.Extras().AsksNetworks) > 0 }) {
		return nil
	}
	for _, p := range whereabouts.Of(st).SecondaryPools {
		if usable, used, ok := p.Capacity(); ok && used >= usable {
			out = append(out, p.FullName())
		}
	}
	return out
}

// networks returns why a pod gets none of the networks that it asks for.
func (e *evaluation) networks(w *blocks.Workload) (out []Cause) {
	asked := whereabouts.Of(e.State).AskedBy(w)
	for _, name := range asked.Absent {
		out = append(out, Cause{Kind: Network, Object: name, Text: "it asks for network " + name + " (k8s.v1.cni.cncf.io/networks), which does not exist"})
	}
	for i, p := range asked.Full {
		c := Cause{Kind: FullNetwork, Object: p.FullName(), Text: fmt.Sprintf("it asks for network %s (k8s.v1.cni.cncf.io/networks), and Whereabouts pool %s has no address left", asked.OfFull[i], p.FullName())}
		if stuck := e.cannotEnd(p); len(stuck) > 0 {
			c.Owner = stuck[0]
			c.Text += fmt.Sprintf("; pods that cannot end, because their nodes are not Ready, hold %d of its addresses, such as %s on %s", len(stuck), c.Owner.FullName(), c.Owner.Node)
		}
		out = append(out, c)
	}
	return out
}

// cannotEnd returns the pod of each allocation of a pool whose pod is terminating on a node that is
// not Ready. Whereabouts keeps the addresses of such pods.
func (e *evaluation) cannotEnd(p *whereabouts.Pool) (pods []*blocks.Workload) {
	for _, a := range whereabouts.Of(e.State).Allocations {
		if a.Pool == p && a.Pod != nil && e.stuck(a.Pod) {
			pods = append(pods, a.Pod)
		}
	}
	return pods
}

// stuck reports whether a pod is terminating on a node that is not Ready.
func (e *evaluation) stuck(w *blocks.Workload) bool {
	h := e.NodeState(w.Node)
	return !w.Deleting.IsZero() && h != nil && h.Node != nil && h.Node.NotReady
}

// taken returns the causes of a pod whose requested addresses are allocated. AssignIP fails for
// them, even for the same pod's new sandbox (libcalico-go ipam/ipam_block.go, assign).
func (e *evaluation) taken(w *blocks.Workload) (out []Cause) {
	for _, a := range w.Extras().StaticIPs {
		if r, ok := e.Allocation(a); ok {
			c := e.owner(w, r)
			c.Kind, c.Object = cmp.Or(c.Kind, Taken), a.String()
			c.Text = fmt.Sprintf("%s, which it asks for (ipAddrs), %s", a, c.Text)
			out = append(out, c)
		}
	}
	return out
}

// owner describes the owner of an allocated address that a pod asks for.
func (e *evaluation) owner(w *blocks.Workload, r state.AllocationRef) Cause {
	attr := r.Attributes()
	if attr == nil {
		return Cause{Text: "is recorded in a corrupt block", Final: true}
	}
	v, kind := e.Classify(r), r.Kind()
	if kind == state.UseCooling {
		return Cause{Text: "was released and is in its cooldown"}
	}
	owner := e.Pod(attr.Namespace, attr.Pod)
	if users := e.Users(r.Addr()); owner == nil && len(users) > 0 {
		owner = users[0]
	}
	switch {
	case owner == w && w.Created.After(attr.Assigned.Add(e.Grace)) && !attr.Assigned.IsZero():
		// kube-controllers pkg/controllers/node/ipam.go, allocationIsValid: a pod without an address keeps all that name it.
		return Cause{Kind: Own, Text: "is still allocated to an earlier pod of the same name, and Calico's collector keeps it while this pod waits", Final: true}
	case owner == w:
		return Cause{Kind: Own, Text: "is held by an earlier sandbox of the same pod", Final: true}
	case owner != nil && owner.Extras().Partial == "":
		return e.ownerPod(w, owner)
	case !v.Owned && attr.Pod != "":
		return Cause{Text: fmt.Sprintf("is still allocated to pod %s, which no longer exists", phrase.FullName(attr.Namespace, attr.Pod)), Leaked: true}
	}
	// An owner that could not be read may be about to release it.
	lasts := kind != state.UsePod && (kind != state.UseVM || !v.Unknown) && !e.unread(blocks.Pods, blocks.Nodes, blocks.VMs, blocks.VMInstances)
	return Cause{Text: "is allocated: " + v.Why(), Final: v.Owned && lasts}
}

// unread reports whether an object of these kinds could not be decoded.
func (e *evaluation) unread(kinds ...blocks.Resource) bool {
	return slices.ContainsFunc(kinds, func(r blocks.Resource) bool { return len(e.Unreadable(r)) > 0 })
}

func (e *evaluation) ownerPod(w, owner *blocks.Workload) Cause {
	text := "is held by pod " + owner.FullName()
	switch {
	case owner.Finished():
		return Cause{Text: text + ", which has ended and has not yet released it"}
	case e.stuck(owner):
		return Cause{Text: fmt.Sprintf("%s, which cannot end because its node %s is not Ready", text, owner.Node), Final: true, Owner: owner}
	case !owner.Deleting.IsZero():
		return Cause{Text: text + ", which is terminating" + phrase.OnNode(owner.Node)}
	}
	if vm := w.Extras().VM; vm != "" && vm == owner.Extras().VM && w.Namespace == owner.Namespace {
		return Cause{Kind: Migration, Text: fmt.Sprintf("%s%s, which runs the same virtual machine (%s)", text, phrase.OnNode(owner.Node), phrase.FullName(w.Namespace, vm)), Final: true}
	}
	return Cause{Text: text + phrase.OnNode(owner.Node), Final: true}
}

// rejected returns the causes of a pod whose request Calico rejects (cni-plugin pkg/k8s/k8s.go,
// CmdAddK8s; libcalico-go ipam/ipam.go, AssignIP and determinePools).
func (e *evaluation) rejected(w *blocks.Workload, h *state.NodeState) (out []Cause) {
	add := func(object, format string, args ...any) {
		out = append(out, Cause{Kind: Request, Object: object, Text: fmt.Sprintf(format, args...), Final: true})
	}
	if field := w.Extras().Rejected; field != "" {
		add(w.FullName(), "its annotation %s cannot be parsed", strings.Trim(strings.TrimPrefix(field, "metadata.annotations"), "[]"))
		return out
	}
	seen := map[blocks.Family]bool{}
	for _, a := range w.Extras().StaticIPs {
		b := e.CoveringBlock(a)
		switch f := blocks.FamilyOf(a); {
		case seen[f]:
			add(w.FullName(), "it asks for several %s addresses (ipAddrs), and Calico accepts one of each family", f)
		case e.EnabledPool(a) == nil:
			add(a.String(), "it asks for %s (ipAddrs), which is in no enabled pool", a)
		case e.IPAM.StrictAffinity && b != nil && b.Owner.Node() != h.Name:
			add(a.String(), "it asks for %s (ipAddrs) of block %s, which belongs to %s, and strict affinity is on", a, b.CIDR, b.Owner)
		}
		seen[blocks.FamilyOf(a)] = true
	}
	if w.StaticAddress { // Calico ignores requested pools then
		return out
	}
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		names := e.RequestedNames(w, f)
		if len(names) == 0 || !slices.Contains(e.Families, f) && e.resolves(names, f) {
			continue // Calico assigns no address of the family
		}
		unmet := e.UnmetRequest(w, f)
		if unmet == "" && len(e.PodPools(w, h.Node, f)) == 0 {
			unmet = fmt.Sprintf("it asks for pool %s, which assigns no addresses to pods", strings.Join(names, ", "))
		}
		if unmet != "" {
			add(strings.Join(names, ","), "%s", unmet)
		}
	}
	return out
}

// resolves reports whether all names are pools of a family. If one is not, Calico's CNI plugin
// fails even if it assigns no address of the family (cni-plugin internal/pkg/utils, ResolvePools).
func (e *evaluation) resolves(names []string, f blocks.Family) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		p := e.PoolByNameOrCIDR(name)
		return p == nil || p.Family() != f
	})
}

// noPool returns the causes of a pod for which a family has no automatic pool. If a pool of a
// family exists, Calico may be set up to assign every pod an address of it (Tigera's operator
// does so), and then fails (projectcalico/calico#11353).
func (e *evaluation) noPool(p *Pod) (out []Cause) {
	if p.StaticAddress {
		return nil
	}
	serving := 0
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		var names blocks.Names
		automatic, since := false, blocks.Time(0)
		for _, q := range e.Pools {
			if q.Family() == f && q.ServesWorkloads() {
				names, automatic, since = append(names, q.Name), automatic || q.Automatic, since.Later(q.Created)
			}
		}
		serving += len(names)
		if len(names) == 0 || automatic || len(e.RequestedNames(p.Workload, f)) > 0 || e.startedWithout(f, p.Since) {
			continue
		}
		out = append(out, Cause{
			Kind: NoPool, Object: strings.Join(names, ","), Final: !e.startedWithout(f, since) && !e.unread(blocks.Pods),
			Text: fmt.Sprintf("all %s pools (%s) assign manually, and Calico asks them for every pod", f, names),
		})
	}
	if serving == 0 {
		out = append(out, Cause{Kind: NoPool, Text: "no enabled IP pool serves pods", Final: true})
	}
	return out
}

// unstarted returns the cause that no pool exists because calico-node, which creates the default pool
// when it starts (node/pkg/lifecycle/startup, configureIPPools), is not Ready.
func (e *evaluation) unstarted(p *Pod, n *blocks.Node) []Cause {
	if agent := e.agents()[n.Name]; agent == nil || agent.Ready || len(e.Pools) > 0 {
		return nil
	}
	causes := e.node(p, n)
	causes[0].Text += ", and calico-node creates the default pool when it starts"
	return causes
}

// startedWithout reports whether a pod without requests has started since a time without an address
// of a family, so Calico does not assign the family to every pod.
func (e *evaluation) startedWithout(f blocks.Family, since blocks.Time) bool {
	return slices.ContainsFunc(e.Workloads, func(w *blocks.Workload) bool {
		return e.startedSince(w, since) && !w.HasFamily(f) && len(e.RequestedNames(w, f)) == 0
	})
}

// startedSince reports whether a pod that requests no specific address has got one from Calico
// since a time.
func (e *evaluation) startedSince(w *blocks.Workload, since blocks.Time) bool {
	return !since.IsZero() && len(w.StatusIPs)+len(w.AnnotationIPs) > 0 && e.Assigned(w) && !w.StaticAddress && w.Created.Later(w.Started).After(since)
}

// pinned returns the pools that the CNI configuration of a node may name (ipv4_pools) and that
// assign nothing: disabled pools, and deleted pools with remaining blocks. If the node got an
// address of another pool since the pod began to wait, the configuration names none.
func (e *evaluation) pinned(p *Pod, h *state.NodeState) []Cause {
	var disabled, deleted blocks.Names
	certain := ""
	for _, f := range e.Families {
		if len(e.RequestedNames(p.Workload, f)) > 0 || slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool {
			return e.startedSince(w, p.Since) && w.HasFamily(f) && len(e.RequestedNames(w, f)) == 0
		}) {
			continue
		}
		for _, q := range e.Pools {
			if q.Family() == f && q.Disabled && q.Allows(blocks.UseWorkload) {
				disabled = append(disabled, q.Name)
				if strings.Contains(p.Quote(), fmt.Sprintf("the given pool (%s) does not exist, or is not enabled", q.CIDR)) {
					certain = q.Name
				}
			}
		}
		for _, b := range h.Blocks {
			if b.Pool == nil && b.Family() == f && b.Used > 0 {
				deleted = append(deleted, b.CIDR.String())
			}
		}
	}
	switch {
	case certain != "":
		return []Cause{{Kind: Pinned, Object: certain, Text: fmt.Sprintf("the CNI configuration (ipv4_pools, ipv6_pools) names pool %s, which is disabled", certain), Final: true}}
	case len(disabled) > 0:
		return []Cause{{Kind: Pinned, Object: disabled[0], Text: fmt.Sprintf("the CNI configuration (ipv4_pools, ipv6_pools) may name pool %s, which is disabled", disabled)}}
	case len(deleted) > 0:
		return []Cause{{Kind: Pinned, Object: h.Name, Text: fmt.Sprintf("the CNI configuration (ipv4_pools, ipv6_pools) may name the deleted pool of %s", deleted)}}
	}
	return nil
}

// hostBits returns the cause that Calico requests a pool by its masked CIDR and does not find it,
// because the pool's CIDR has host bits set: older releases compare CIDRs as written
// (projectcalico/calico#4300).
func (e *evaluation) hostBits(p *Pod) []Cause {
	for _, q := range e.Pools {
		if q.Unmasked.IsValid() && !q.Disabled && strings.Contains(p.Quote(), fmt.Sprintf("the given pool (%s) does not exist", q.CIDR)) {
			return []Cause{{Kind: HostBits, Object: q.Name, Final: true,
				Text: fmt.Sprintf("Calico asks for %s and does not find it, because pool %s is written as %s, with host bits set", q.CIDR, q.Name, q.Unmasked)}}
		}
	}
	return nil
}

// node returns the cause that calico-node or the kubelet does not work on a node. Without
// calico-node, the CNI plugin finds no /var/lib/calico/nodename and fails.
func (e *evaluation) node(p *Pod, n *blocks.Node) []Cause {
	var why blocks.Names
	kind := Node
	if n.NotReady {
		why = append(why, "is not Ready")
	}
	agent := e.agents()[n.Name]
	if len(n.Addresses) == 0 && (agent != nil && !agent.Ready || slices.ContainsFunc(e.Nodes, func(o blocks.Node) bool { return len(o.Addresses) > 0 })) {
		why = append(why, "has no Calico address"+agents.Method(agent))
	}
	switch {
	case agent != nil && !agent.Ready:
		text := "has a calico-node pod that is not Ready (" + agent.FullName() + ")"
		if !p.Since.IsZero() && agent.Created.After(p.Since.Add(e.Grace)) {
			kind, text = Replaced, text+", created at "+agent.Created.String()+", while the pod waited"
		}
		why = append(why, text)
	case agent == nil && len(e.agents()) > 0 && !n.Windows:
		why = append(why, "runs no calico-node pod")
	}
	for _, p := range n.Addresses {
		if p.Addr().IsLoopback() {
			return []Cause{{Kind: Loopback, Object: n.Name, Text: fmt.Sprintf("calico-node took %s for the address of node %s (its environment variable IP, or IP_AUTODETECTION_METHOD)", p.Addr(), n.Name)}}
		}
	}
	if len(why) == 0 {
		return nil
	}
	text := "node " + n.Name + " " + why.String()
	if n.Windows && len(n.Addresses) == 0 {
		return []Cause{{Kind: Unnamed, Object: n.Name, Text: text + ": Calico for Windows does not run there, or runs under another name than the Node's"}}
	}
	if misfit := e.misfit(n); misfit != "" {
		if text += ", because calico-node " + misfit; n.FromFlannel() {
			return []Cause{{Kind: Unmigrated, Object: n.Name, Text: text + ": the node's migration from flannel has not ended"}}
		}
		return []Cause{{Kind: Misfit, Object: n.Name, Text: text}}
	}
	if len(n.Addresses) > 0 {
		return []Cause{{Kind: kind, Object: n.Name, Text: text}}
	}
	for i := range e.Nodes {
		for _, a := range e.Nodes[i].Addresses { // node/pkg/lifecycle/startup, checkConflictingNodes
			if slices.Contains(n.InternalIPs, a.Addr()) {
				if kind = SameAddress; n.Ready && e.Nodes[i].Ready {
					kind = SharedAddress
				}
				return []Cause{{Kind: kind, Object: n.Name, Text: fmt.Sprintf("%s: node %s records its address %s, and calico-node does not start while another node has it", text, e.Nodes[i].Name, a.Addr())}}
			}
		}
	}
	return []Cause{{Kind: kind, Object: n.Name, Text: text}}
}

// misfit explains why no calico-node pod of another node fits a node. It returns "" if one does, or
// if the node runs one.
func (e *evaluation) misfit(n *blocks.Node) (why string) {
	if e.agents()[n.Name] != nil || n.Windows {
		return ""
	}
	seen := map[*blocks.Controller]bool{}
	for _, name := range slices.Sorted(maps.Keys(e.agents())) {
		w := e.agents()[name]
		if seen[w.Controller] {
			continue // the pods of a DaemonSet have equal constraints
		}
		seen[w.Controller] = true
		if why = w.Misfit(n); why == "" {
			return ""
		}
	}
	return why
}

// inUse returns the cause that Calico may assign an address that a pod of the node already uses:
// the CNI plugin then finds another interface's route and fails (projectcalico/calico#3940).
func (e *evaluation) inUse(node string) []Cause {
	all := e.unrecorded()[node]
	if len(all) == 0 {
		return nil
	}
	return []Cause{{Kind: Unrecorded, Object: node, Text: fmt.Sprintf("Calico may assign it an address that another pod of %s uses and no block records (%s)", node, all)}}
}

// unrecordedOf returns, by node, the addresses that pods of the node use and that the node's own
// blocks call free.
func unrecordedOf(st *state.State) map[string]blocks.Names {
	out := map[string]blocks.Names{}
	st.EachUnrecorded(func(u state.UnrecordedIP) {
		if u.Block != nil && u.OtherIPAM == "" && u.Users[0].Node == u.Block.Owner.Node() {
			out[u.Users[0].Node] = append(out[u.Users[0].Node], u.Addr.String())
		}
	})
	return out
}
