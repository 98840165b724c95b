package remedies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// staysBorrowed is true of a virtual machine's address, which no restart changes.
func staysBorrowed(b *state.Borrow) bool {
	return b.VM || b.Workload != nil && b.Workload.Extras().VM != ""
}

// rehome moves pods that borrow to blocks of their own nodes; of some pools, or of all.
// If of the borrowed addresses that it is for no pod may be evicted without consent, it
// carries the consent, which then holds for every pod that borrows of these pools; where
// one of them would be gone for good, it leaves it to people.
func (st *Remedies) rehome(pools []*state.Pool, borrows []*state.Borrow) Remedy {
	r := Rehome
	r.Risk = st.evictionRisk()
	var all, alone []string
	bare, guarded := false, false
	concerns := func(b *state.Borrow) bool { return len(pools) == 0 || slices.Contains(pools, b.Block.Pool) }
	for _, b := range borrows {
		w := b.Workload
		if w == nil || b.Tunnel || staysBorrowed(b) || !concerns(b) {
			continue
		}
		all = append(all, w.FullName())
		if st.EvictionBar(w) != "" {
			continue
		}
		if guarded = !st.Unguarded(w); guarded {
			break
		}
		alone, bare = append(alone, w.FullName()), bare || w.Controller == nil
	}
	if !guarded && len(alone) > 0 {
		for _, b := range st.singletons() {
			if name := b.Workload.FullName(); concerns(b) && !slices.Contains(alone, name) {
				alone, bare = append(alone, name), bare || b.Workload.Controller == nil
			}
		}
	}
	switch {
	case guarded || len(all) == 0:
	case len(alone) == 0 || bare: // the plan would have no step, or end a pod for good
		return Restart("restart the pods that borrow and that no plan may restart: "+phrase.Some(all), r.Effect)
	default:
		r = r.with(" --evict-singletons")
		r.Risk += "; nothing stands in meanwhile for " + phrase.Some(alone)
	}
	r.Effect = st.rehomeEffect(concerns, len(alone) > 0)
	if len(pools) > 0 {
		r = r.with(" --pool " + phrase.Arg(strings.Join(state.PoolsOf(pools...), ",")))
	}
	// The plan asks for that consent, for a replacement may come to a full node.
	full, refused := st.Full(), "; it is refused as long as the cordons that stand for it leave"
	if len(full) > 0 {
		r, refused = r.with(" --cordon-full"), ", which is refused as long as it leaves"
		r.Risk += "; nodes without room of their own are cordoned meanwhile: now " + phrase.Some(full)
	}
	if pool, left, of := st.LeavesTooFew(full); pool != "" {
		r.Risk += fmt.Sprintf("%s %d of the %d nodes of pool %s to take pods, fewer than half: add a pool first", refused, left, of, pool)
	}
	if now, _ := st.Rehomes(); slices.ContainsFunc(now, func(m Move) bool { return m.Elsewhere }) {
		r.Risk += "; pods whose node has no address for them borrow again or wait if an affinity between pods, which is not read, keeps them there"
	}
	return r
}

// rehomeEffect says how many of the borrowed addresses of a concern one run gives back, with
// the consent to evict pods that nothing stands in for or without.
func (st *Remedies) rehomeEffect(concerns func(*state.Borrow) bool, singletons bool) string {
	moving := map[netip.Addr]bool{}
	now, _ := st.Rehomes()
	for _, m := range now {
		moving[m.Addr] = st.EvictionBar(m.Pod) == "" && (singletons || !st.Unguarded(m.Pod))
	}
	all, back := 0, 0
	for _, b := range st.Borrows {
		if !concerns(b) {
			continue
		}
		if all++; moving[b.Addr] {
			back++
		}
	}
	if back == all {
		return "nothing is borrowed any more"
	}
	return fmt.Sprintf("%d of %s given back; repair says why the others stay", back, phrase.PluralVerb(all, "borrowed address", "is", "are"))
}

// findSingletons returns the borrows of pods that --evict-singletons lets go: those that
// are not barred and that nothing stands in for.
func (st *Remedies) findSingletons() (out []*state.Borrow) {
	for _, b := range st.Borrows {
		if w := b.Workload; w != nil && !b.Tunnel && !staysBorrowed(b) && st.Unguarded(w) && st.EvictionBar(w) == "" && st.asksForPools(Move{Pod: w, Addr: b.Addr}) == "" {
			out = append(out, b)
		}
	}
	return out
}

// evictionRisk is what evictions cost, with what is not known of them.
func (st *Remedies) evictionRisk() string {
	if st.BudgetsKnown {
		return evictionRisk
	}
	return evictionRisk + "; the budgets were not read: a pod whose budget allows no disruption stays, and repair says so"
}

// consolidation is to empty the block that takes the fewest pods for the first node that
// lacks one; nil if there is none that could be emptied without ending a bare pod, which
// nothing makes again, or that needs to be.
func (st *Remedies) consolidation(s *shortage, rehome []string) *Remedy {
	var tried [][]*state.Pool
	for _, n := range st.NodesWithoutBlock() {
		if !s.has[n] || slices.ContainsFunc(tried, func(pools []*state.Pool) bool { return slices.Equal(pools, st.PoolsAtIssue(n)) }) {
			continue // no block of these pools can be emptied, for whomever
		}
		tried = append(tried, st.PoolsAtIssue(n))
		all := st.Consolidations(n)
		if len(all) == 0 || len(all[0].Barred) > 0 || slices.ContainsFunc(all[0].Unguarded, func(m Move) bool { return m.Pod.Controller == nil }) {
			continue
		}
		c := all[0]
		flags := "--consolidate --pool " + phrase.Arg(c.Pool.Name)
		r := Repair(fmt.Sprintf("empty %s of %s for %s: %s", c.CIDR, c.Holder, c.For, phrase.PluralVerb(len(c.Moves), "pod", "moves", "move")), flags,
			fmt.Sprintf("%s gets a block of its own", c.For), st.evictionRisk())
		if needing := len(s.cut) + len(s.next); needing > 1 {
			r.Effect += fmt.Sprintf("; %s: run the first command again for each", phrase.PluralVerb(needing-1, "other node", "needs one, too", "need ones, too"))
		}
		if len(c.Cordon) > 0 {
			flags += " --cordon-full"
			r.Risk += fmt.Sprintf("; %s, which %s no room of %s own, %s cordoned meanwhile", phrase.Some(c.Cordon), phrase.One(len(c.Cordon), "has", "have"), phrase.One(len(c.Cordon), "its", "their"), phrase.One(len(c.Cordon), "is", "are"))
			if pool, left, of := st.LeavesTooFew(c.Cordon); pool != "" {
				r.Risk += fmt.Sprintf(", which leaves %d of the %d nodes of pool %s to take pods, fewer than half", left, of, pool)
			}
		}
		if len(c.Unguarded) > 0 {
			flags += " --evict-singletons"
			r.Risk += fmt.Sprintf("; nothing stands in meanwhile for %s", phrase.Some(podNames(c.Unguarded)))
		}
		if lose := Scratch(c.Moves); len(lose) > 0 {
			r.Risk += fmt.Sprintf("; %s what emptyDir volumes hold", phrase.PluralVerb(len(lose), "pod", "loses", "lose"))
		}
		r.Commands = append([]string{repairCommand(flags)}, rehome...)
		return &r
	}
	return nil
}

func podNames(moves []Move) (out []string) {
	for _, m := range moves {
		out = append(out, m.Pod.FullName())
	}
	return out
}

// NodeRemedies are the ways in which a node comes by a block.
func (st *Remedies) NodeRemedies(n *state.NodeBlockStatus) []Remedy {
	if root := st.Root(st.RootOfNode(n)); root != nil {
		return root.Remedies()
	}
	return causeRemedies(n, rootCause(n), n.Detail)
}

// StuckRemedies are the ways in which a pod that can get no address comes by one.
func (st *Remedies) StuckRemedies(n *state.NodeBlockStatus, s state.Stuck) []Remedy {
	for _, p := range st.PodPools(s.Pod, n.Host.Node, n.Family) {
		if root := st.Root(st.RootOfPool(p)); root != nil && s.Cause.Shortfall() {
			return root.Remedies()
		}
	}
	return causeRemedies(n, s.Cause, s.Detail)
}

// AutoBlocks is to let nodes claim blocks by themselves.
var AutoBlocks = ByHand("turn autoAllocateBlocks on in the IPAM configuration", "nodes claim blocks by themselves", EverywhereRisk, "calicoctl ipam show --show-configuration")

// causeRemedies are the ways in which a node comes by a block, where something else
// than a lack of blocks keeps it from one.
func causeRemedies(n *state.NodeBlockStatus, c state.Cause, detail string) []Remedy {
	explain := "calico-audit explain " + phrase.Arg(n.Host.Name)
	switch c {
	case state.CauseSelector:
		return []Remedy{ByHand("correct the pool's selector: "+detail, "nodes claim blocks again, and pods get addresses", EverywhereRisk, explain)}
	case state.CauseNoPool:
		r := SelectNode
		r.Commands = []string{explain}
		return []Remedy{r}
	case state.CauseUnserved:
		return []Remedy{ByHand("let a pool serve the pod: what it or its namespace asks for, or a pool's namespace selector, has to change", "the pod gets an address", EverywhereRisk, explain)}
	case state.CauseNoAuto:
		return []Remedy{AutoBlocks}
	case state.CauseLimit:
		return []Remedy{RaiseLimit}
	default:
		return nil
	}
}

// BorrowRemedies are what ends a borrow.
func (st *Remedies) BorrowRemedies(b *state.Borrow) []Remedy {
	if root := st.Root(st.RootOfBorrow(b)); root != nil && !b.Tunnel {
		return root.Remedies()
	}
	switch annotation := tunnelAnnotations[b.Attributes.Extras().Type]; {
	case staysBorrowed(b):
		return nil // kept by design: restarting anything does not end it
	case b.Tunnel && annotation != "":
		r := RenewTunnel
		r.Title = fmt.Sprintf("once %s has a block, take the tunnel's address off the node, and restart its calico-node pod if no new one appears within a minute", b.User)
		r.Commands = []string{fmt.Sprintf("kubectl annotate node %s %s-", phrase.Arg(b.User), annotation)}
		return []Remedy{r}
	case b.Workload != nil:
		return []Remedy{st.rehome(nil, []*state.Borrow{b})}
	}
	return nil
}

// tunnelAnnotations are those of a Node that hold its tunnels' addresses (libcalico-go
// lib/backend/k8s/resources/node.go). calico-node keeps an address that they name,
// however often it is restarted (node/pkg/allocateip, ensureHostTunnelAddress).
var tunnelAnnotations = map[string]string{
	blocks.TypeIPIP:        "projectcalico.org/IPv4IPIPTunnelAddr",
	blocks.TypeVXLAN:       "projectcalico.org/IPv4VXLANTunnelAddr",
	blocks.TypeVXLANv6:     "projectcalico.org/IPv6VXLANTunnelAddr",
	blocks.TypeWireguard:   "projectcalico.org/IPv4WireguardInterfaceAddr",
	blocks.TypeWireguardV6: "projectcalico.org/IPv6WireguardInterfaceAddr",
}

// leakRemedies are what ends leaks. Where of no address it is proven that nothing uses
// it, the plan would only refuse: the proof is for people to bring. Of a node that does
// not answer, because it is gone or NotReady, that is its machine's being off.
func (st *Remedies) leakRemedies() []Remedy {
	var unseen, silent []string
	nameless := false
	for _, r := range st.Unowned() {
		if r.Owned || st.RootOfLeak(r.AllocationRef) != "leaks" {
			continue
		}
		node := state.NodeOf(r.Attributes())
		off, _ := st.MachineOff(node)
		switch {
		case off || st.HostEvidence(r.AllocationRef).Verdict == hosts.ShowsFree:
			return []Remedy{ReleaseLeaks}
		case node == "":
			nameless = true
		case st.MachineMayRun(node):
			silent = append(silent, node)
		default:
			unseen = append(unseen, node)
		}
	}
	r := ReleaseLeaks
	var how, risk []string
	if slices.Sort(unseen); len(unseen) > 0 {
		how = append(how, "with host views of "+phrase.Some(slices.Compact(unseen))+" that do not show them (--host-views), or without that proof (--without-host-evidence)")
	}
	if nameless {
		how = append(how, "those that name no node with --without-host-evidence")
	}
	if len(how) > 0 {
		risk = append(risk, unprovenRisk)
	}
	if slices.Sort(silent); len(silent) > 0 {
		silent = slices.Compact(silent)
		r = r.with(" --terminated " + phrase.Arg(strings.Join(silent, ",")))
		how = append(how, fmt.Sprintf("those of %s once %s known to be off (--terminated)", phrase.Some(silent), phrase.One(len(silent), "its machine is", "their machines are")))
		risk = append(risk, "a machine that runs still may use the addresses: --terminated says that it does not")
	}
	if len(how) > 0 {
		r.Title, r.Risk, r.Manual = "release the leaked addresses: "+strings.Join(how, "; "), strings.Join(risk, "; "), true
	}
	return []Remedy{r}
}

// leftBehind is what a node that no longer exists has left and nothing owns: addresses
// recorded for it, and in its blocks those recorded for no node, or for another one.
type leftBehind struct {
	own      bool
	nameless []string // the addresses
	beside   []string // the blocks of those of other nodes
}

// findLeftBehind returns what nodes that no longer exist have left, by their names.
func (st *Remedies) findLeftBehind() map[string]*leftBehind {
	out := map[string]*leftBehind{}
	of := func(node string) *leftBehind {
		if out[node] == nil {
			out[node] = &leftBehind{}
		}
		return out[node]
	}
	st.EachAllocation(func(a state.AllocationRef, node string) {
		host := a.Block.Owner.Node()
		if !st.Vanished(node) && !st.Vanished(host) {
			return
		}
		leaked := !st.Classify(a).Owned
		switch {
		case st.Vanished(node) && (leaked || state.UseKindOf(a.Block, a.Attributes()) == state.UseTunnel):
			of(node).own = true
		case leaked && !st.Vanished(node):
			left, cidr := of(host), a.Block.CIDR.String()
			if node == "" {
				left.nameless = append(left.nameless, a.Addr().String())
			} else if !slices.Contains(left.beside, cidr) {
				left.beside = append(left.beside, cidr)
			}
		}
	})
	return out
}

// cleanUp is what ends what nodes that no longer exist have left behind: first what nothing
// owns, which only people can say that no machine uses any more. Their word is for what
// names no node alone: nodes that answer are to be asked (--host-views).
func (st *Remedies) cleanUp(nodes []string) Remedy {
	names := phrase.Arg(strings.Join(nodes, ","))
	r := CleanUpNode.with(" --node " + names)
	r.Title = fmt.Sprintf("clean up after %s %s", phrase.One(len(nodes), "node", "nodes"), phrase.Some(nodes))
	var first, risk, off, nameless, beside, whose []string
	for _, n := range nodes {
		if left := st.leftBehind()[n]; left != nil {
			if left.own {
				off = append(off, n)
			}
			beside, nameless = append(beside, left.beside...), append(nameless, left.nameless...)
		}
	}
	if len(beside) > 0 {
		whose = append(whose, "other nodes")
	}
	if len(nameless) > 0 {
		whose = append(whose, "no node")
	}
	if len(whose) > 0 {
		r.Title += fmt.Sprintf(", with the leaked addresses in %s blocks that name %s", phrase.One(len(nodes), "its", "their"), strings.Join(whose, " or "))
	}
	if len(off) > 0 {
		names := phrase.Arg(strings.Join(off, ","))
		r.Title += fmt.Sprintf(", once %s known to be off", phrase.One(len(off), "its machine is", "their machines are"))
		first = append(first, repairCommand("--leaked-ips --node "+names+" --terminated "+names))
		risk = append(risk, "a machine that runs still may use the addresses: --terminated says that it does not")
	}
	if len(nameless) > 0 {
		first = append(first, repairCommand("--leaked-ips --ip "+phrase.Arg(strings.Join(nameless, ","))+" --without-host-evidence"))
		risk = append(risk, unprovenRisk+"; it is for what names no node alone")
	}
	if len(beside) > 0 {
		first = append(first, repairCommand("--leaked-ips --block "+phrase.Arg(strings.Join(beside, ","))))
		risk = append(risk, "what other nodes leaked there is released only with proof that nothing uses it, such as host views of theirs (--host-views)")
	}
	if len(first) > 0 {
		r.Manual = true
		r.Commands = append(first, r.Commands...)
		r.Effect = "leaked addresses are released; then " + r.Effect
		r.Risk = strings.Join(append(risk, r.Risk), "; ")
	}
	return r
}

// StrictRemedies are the way to strict affinity that leaves no pod without an address.
func (st *Remedies) StrictRemedies() []Remedy {
	r := SetStrict
	if g := st.FirstMissing(state.BlockStatusReads); g != nil {
		r.Title, r.Risk = "find out which nodes have no block, which this audit could not evaluate; then turn strict affinity on", "pods of nodes without a block get no address"
		r.Manual = true
	} else if cut := st.WouldNotAllocate(); len(cut) > 0 {
		r.Title, r.Risk = "first free or add blocks for "+phrase.List(cut)+"; then turn strict affinity on", "before that, their next pods get no address"
		r.Manual = true
	}
	return []Remedy{r}
}

// WouldNotAllocate lists the nodes whose next pod would get no address if strict
// affinity were on: their own blocks, if any, are full, and no block is left for them.
func (st *Remedies) WouldNotAllocate() []string {
	var out []string
	for _, h := range st.NodeStates {
		if slices.ContainsFunc(h.BlockStatus, (*state.NodeBlockStatus).RequiresBlocks) {
			out = append(out, h.Name)
		}
	}
	return out
}

// RestartRemedies is to restart a pod, for a reason. A virtual machine's pod is never
// restarted on our word: that stops the machine, and does not change its address.
func RestartRemedies(w *blocks.Workload, effect string) []Remedy {
	if w.Extras().VM != "" {
		return nil
	}
	return []Remedy{Restart("restart pod "+w.FullName(), effect, "kubectl get pod --namespace "+phrase.Arg(w.Namespace)+" "+phrase.Arg(w.Name)+" -o wide")}
}

// EndUse is what frees an address that nothing owns and something still uses: where, if
// that is not said beside it.
func EndUse(uses []hosts.Use) Remedy {
	const effect, risk = "the address can be released", "it may be a container that still serves, although its pod object is gone"
	if len(uses) == 0 {
		return ByHand("find out what runs in that network namespace, and end it if it is a left-over; then plan again", effect, risk)
	}
	var nodes, where []string
	for _, u := range uses {
		if where = append(where, hosts.NamespaceText(u.View.Node, u.Namespace)); !slices.Contains(nodes, u.View.Node) {
			nodes = append(nodes, u.View.Node)
		}
	}
	return ByHand(fmt.Sprintf("find out what runs in %s, and end it if it is a left-over; processes in state D end only with a drain and reboot of %s", phrase.List(where), phrase.Each(nodes)),
		effect, risk)
}
