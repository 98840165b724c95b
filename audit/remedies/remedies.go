package remedies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/finished"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

// consolidation is the remedy that empties the block with the fewest pods for the first node
// without one. It returns nil if no block has to be emptied, or if each has a bare pod, which no
// controller recreates.
func (st *Remedies) consolidation(s *shortage, rehome []string) *Remedy {
	var tried [][]*state.Pool
	for _, n := range st.NodesWithoutBlock() {
		if !s.has[n] || slices.ContainsFunc(tried, func(pools []*state.Pool) bool { return slices.Equal(pools, st.PoolsAtIssue(n)) }) {
			continue // no block of these pools can be emptied, for any node
		}
		tried = append(tried, st.PoolsAtIssue(n))
		all := st.Consolidations(n)
		if len(all) == 0 || len(all[0].Barred) > 0 || slices.ContainsFunc(all[0].Unguarded, func(m Move) bool { return m.Pod.Controller == nil }) {
			continue
		}
		c := all[0]
		flags := Shell("--consolidate --pool %s", c.Pool.Name)
		r := Repair(fmt.Sprintf("empty %s of %s for %s (pods to move: %d)", c.CIDR, c.Holder, c.For, len(c.Moves)), flags,
			c.For+" gets a block", st.evictionRisk())
		if needing := len(s.cut) + len(s.next); needing > 1 {
			r.Effect += fmt.Sprintf("; repeat the first command for each other node without one (%d)", needing-1)
		}
		if cordon := slices.Concat(c.Cordon, st.MayFill(c.Moves, c.Block, c.Cordon)); len(cordon) > 0 {
			flags += " --cordon-full"
		}
		if len(c.Cordon) > 0 {
			if pool, left, of := st.LeavesTooFew(c.Cordon); pool != "" {
				r.Risk += fmt.Sprintf("; only %d of %d nodes of %s take pods", left, of, pool)
			} else {
				r.Risk += fmt.Sprintf("; nodes cordoned: %d", len(c.Cordon))
			}
		}
		if len(c.Unguarded) > 0 {
			flags += " --evict-singletons"
			r.Risk += withoutReplica(len(c.Unguarded))
		}
		if lose := Scratch(c.Moves); len(lose) > 0 {
			r.Risk += fmt.Sprintf("; pods that lose emptyDir data: %d", len(lose))
		}
		r.Commands = append([]string{repairCommand(flags)}, rehome...)
		r.Yield = &Yield{Blocks: 1, Pods: len(c.Moves)}
		return &r
	}
	return nil
}

// NodeRemedies returns the ways for a node to get a block.
func (st *Remedies) NodeRemedies(n *state.NodeBlockStatus) []Remedy {
	if root := st.Root(st.RootOfNode(n)); root != nil {
		return root.Remedies()
	}
	return st.causeRemedies(n, rootCause(n), n.Detail)
}

// StuckRemedies returns the remedies for a pod that cannot get an address.
func (st *Remedies) StuckRemedies(n *state.NodeBlockStatus, s state.Stuck) []Remedy {
	for _, p := range st.PodPools(s.Pod, n.Host.Node, n.Family) {
		if root := st.Root(st.RootOfPool(p)); root != nil && s.Cause.Shortfall() {
			return root.Remedies()
		}
	}
	return st.causeRemedies(n, s.Cause, s.Detail)
}

// AutoBlocks is the remedy that lets nodes claim blocks by themselves.
var AutoBlocks = ByHand("turn autoAllocateBlocks on in the IPAM configuration", "nodes claim blocks by themselves", EverywhereRisk, "calicoctl ipam show --show-configuration")

// causeRemedies returns the remedies for a node that cannot claim a block for any reason other than
// a lack of blocks.
func (st *Remedies) causeRemedies(n *state.NodeBlockStatus, c state.Cause, detail string) []Remedy {
	explain := Shell("calico-audit explain %s", n.Host.Name)
	switch c {
	case state.CauseSelector:
		return []Remedy{ByHand("correct the pool's selector: "+detail, "nodes claim blocks again, and pods get addresses", EverywhereRisk, explain)}
	case state.CauseNoPool:
		r := SelectNode
		r.Title += " (" + blocks.Names(strings.Split(detail, "; ")).String() + ")"
		r.Commands = []string{explain}
		return []Remedy{r}
	case state.CauseUnserved:
		return []Remedy{ByHand("let a pool serve the pod: change the request of the pod or its namespace, or a pool's namespace selector", "the pod gets an address", EverywhereRisk, explain)}
	case state.CauseNoAuto:
		return []Remedy{AutoBlocks}
	case state.CauseLimit:
		return st.LimitRemedies(n.Host.Name, n.Pools)
	default:
		return nil
	}
}

// LimitRemedies returns the ways for a node that is at the block limit of the given pools to get
// addresses.
func (st *Remedies) LimitRemedies(node string, pools []*state.Pool) (out []Remedy) {
	if pods := finished.OnNode(st.State, node); len(pods) > 0 {
		out = append(out, DeleteFinishedOf(node, pods))
	}
	if n := st.LeakedOn(node); n > 0 {
		r := LeaksFirst
		r.Title = fmt.Sprintf("release the leaked addresses of %s (%d), as described under ip/leaked", node, n)
		out = append(out, r)
	}
	switch {
	case len(pools) > 0 && !slices.ContainsFunc(pools, func(p *state.Pool) bool { return p.CIDR.Addr().BitLen()-p.BlockSize > 2 }):
		return append(out, LargerBlocks)
	case st.IPAM.StrictAffinity: // else Calico rejects maxBlocksPerHost (IPAMConfig.Rejected)
		return append(out, RaiseLimit)
	}
	return append(out, FewerPods)
}

// LeakedOn counts the leaked addresses of a node; 0 if its pods were not read.
func (st *Remedies) LeakedOn(node string) (n int) {
	if st.FirstMissing([]blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods}) != nil {
		return 0
	}
	for _, r := range st.Unowned() {
		if !r.Owned && state.NodeOf(r.Attributes()) == node {
			n++
		}
	}
	return n
}

// DeleteFinishedOf is [DeleteFinished] for the given pods of a node, with commands that show them.
func DeleteFinishedOf(node string, pods []*blocks.Workload) Remedy {
	r := DeleteFinished
	r.Title = fmt.Sprintf("delete the finished pods on %s, and let Jobs delete theirs (ttlSecondsAfterFinished)", node)
	r.Commands = nil
	var phases []string
	for _, w := range pods {
		if !slices.Contains(phases, w.Phase) {
			phases = append(phases, w.Phase)
			r.Commands = append(r.Commands, Shell("kubectl get pods --all-namespaces --field-selector=%s", "spec.nodeName="+node+",status.phase="+w.Phase))
		}
	}
	return r
}

// BorrowRemedies returns the ways to end a borrow.
func (st *Remedies) BorrowRemedies(b *state.Borrow) []Remedy {
	if root := st.Root(st.RootOfBorrow(b)); root != nil && !b.Tunnel {
		return root.Remedies()
	}
	switch annotation := tunnelAnnotations[b.Attributes.Extras().Type]; {
	case staysBorrowed(b): // on purpose: a restart does not end it
		return []Remedy{ByHand(LeaveIt+"a virtual machine keeps its address wherever it runs", "nothing changes", "none")}
	case b.Tunnel && annotation != "":
		r := RenewTunnel
		r.Title = fmt.Sprintf("once %s has a block, take the tunnel's address off the node, and restart its calico-node pod if no new one appears within a minute", b.User)
		r.Commands = []string{Shell("kubectl annotate node %s %s", b.User, annotation+"-")}
		return []Remedy{r}
	case b.Workload != nil:
		return []Remedy{st.rehome(nil, []*state.Borrow{b})}
	}
	return nil
}

// tunnelAnnotations are the annotations of a Node that hold its tunnel addresses (libcalico-go
// lib/backend/k8s/resources/node.go). calico-node keeps an address that they name, however often it
// restarts (node/pkg/allocateip, ensureHostTunnelAddress).
var tunnelAnnotations = map[string]string{
	blocks.TypeIPIP:        "projectcalico.org/IPv4IPIPTunnelAddr",
	blocks.TypeVXLAN:       "projectcalico.org/IPv4VXLANTunnelAddr",
	blocks.TypeVXLANv6:     "projectcalico.org/IPv6VXLANTunnelAddr",
	blocks.TypeWireguard:   "projectcalico.org/IPv4WireguardInterfaceAddr",
	blocks.TypeWireguardV6: "projectcalico.org/IPv6WireguardInterfaceAddr",
}

// StrictRemedies returns the way to enable strict affinity without leaving a pod without an
// address.
func (st *Remedies) StrictRemedies() []Remedy {
	r := SetStrict
	if g := st.FirstMissing(state.BlockStatusReads); g != nil {
		r.Title, r.Risk = "find out which nodes have no block, which this audit could not evaluate; then turn strict affinity on", "pods of nodes without a block get no address"
		r.Manual = true
	} else if cut := slices.Compact(slices.Sorted(slices.Values(slices.Concat(st.WouldNotAllocate(), st.CrowdedOut())))); len(cut) > 0 {
		r.Title, r.Risk = "first free or add blocks for "+phrase.List(cut)+"; then turn strict affinity on", "before that, their next pods get no address"
		r.Manual = true
	}
	return []Remedy{r}
}

// CrowdedOut returns the nodes that compete with Windows nodes for the last blocks under strict
// affinity. Without it, Windows nodes claim none.
func (st *Remedies) CrowdedOut() blocks.Names {
	starving, crowded := st.MayStarve()
	if !crowded {
		return nil
	}
	return slices.DeleteFunc(starving, func(name string) bool { return st.NodeState(name).Node.Windows })
}

// WouldNotAllocate lists the nodes whose next pod would get no address under strict affinity: their
// own blocks, if any, are full, and no block is left for them to claim.
func (st *Remedies) WouldNotAllocate() blocks.Names {
	var out []string
	for _, h := range st.NodeStates {
		if slices.ContainsFunc(h.BlockStatus, func(n *state.NodeBlockStatus) bool { return n.Unused == 0 && n.Cause != state.CauseNone }) {
			out = append(out, h.Name)
		}
	}
	return out
}

// RestartRemedies tells the operator to restart a pod. It never restarts a virtual machine's pod:
// that stops the machine and does not change its address.
func RestartRemedies(w *blocks.Workload, effect string) []Remedy {
	if w.Extras().VM != "" {
		return nil
	}
	return []Remedy{Restart("restart pod "+w.FullName(), effect, Shell("kubectl get pod --namespace %s %s -o wide", w.Namespace, w.Name))}
}

// findNodeNames finds the roots of machines on which calico-node uses another node's name. There is
// one root per name, because all machines made from one image may use it.
func (st *Remedies) findNodeNames() {
	nodes := map[string]blocks.Names{}
	for _, h := range st.NodeStates {
		if as := identity.WrittenAs(st.State, h.Name); as != "" && h.Node != nil {
			nodes[as] = append(nodes[as], h.Name)
		}
	}
	for as, on := range nodes {
		all := on.String()
		st.root("nodename/"+as, func(int) string {
			return fmt.Sprintf("Calico on %s writes under the name %s: the allocations of pods there name that node", all, as)
		}, func() []Remedy {
			r := FixNodeName
			r.Title = fmt.Sprintf("correct the name %s in /var/lib/calico/nodename on %s, in the CNI configuration there (nodename), or in NODENAME of calico-node; then restart calico-node there, and then the pods", as, all)
			if len(on) == 1 {
				r.Commands = []string{Shell("kubectl get pods --all-namespaces --selector=k8s-app=calico-node --field-selector=%s", "spec.nodeName="+on[0])}
			}
			return []Remedy{r}
		})
	}
}

// findFamilies finds the roots of nodes that record no Calico address of a family of their pods.
func (st *Remedies) findFamilies() {
	nodes := map[blocks.Family]blocks.Names{}
	for _, m := range identity.WithoutAddress(st.State) {
		nodes[m.Family] = append(nodes[m.Family], m.Name)
	}
	delete(nodes, 0)
	for f, on := range nodes {
		st.root("address-family/"+f.String(), func(int) string {
			return fmt.Sprintf("calico-node records no %s address of %s, but the pods there have %s addresses: other nodes have no route to them", f, on, f)
		}, func() []Remedy { return []Remedy{DetectFamily(f)} })
	}
}

// RootOfFamily returns the root of nodes that record no Calico address of a family.
func (st *Remedies) RootOfFamily(f blocks.Family) string {
	if f == 0 {
		return ""
	}
	return st.known("address-family/" + f.String())
}

// RootOfNodeName returns the root of a machine on which calico-node uses another node's name.
func (st *Remedies) RootOfNodeName(node string) string {
	as := identity.WrittenAs(st.State, node)
	if h := st.NodeState(node); as == "" || h == nil || h.Node == nil {
		return ""
	}
	return st.known("nodename/" + as)
}

// EndUse is the remedy for an address without an owner that is still in use. uses are the places of
// use; empty if the output already shows them.
func EndUse(uses []hosts.Use) Remedy {
	const effect, risk = "the address can be released", "it may be a container that still serves, although its pod object is gone"
	if len(uses) == 0 {
		return ByHand("find the process in that network namespace, and end it if it is left over; then plan again", effect, risk)
	}
	var nodes, where blocks.Names
	for _, u := range uses {
		if where = append(where, hosts.NamespaceText(u.View.Node, u.Namespace)); !slices.Contains(nodes, u.View.Node) {
			nodes = append(nodes, u.View.Node)
		}
	}
	return ByHand(fmt.Sprintf("find the processes in %s, and end those that are left over; processes in state D end only with a drain and reboot of %s", where, nodes),
		effect, risk)
}
