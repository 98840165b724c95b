package remedies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/finished"
	"github.com/calico-audit/calico-audit/blocks"
)

// shortage groups pools of one family that serve the same nodes and are short of blocks or
// addresses, now or soon.
type shortage struct {
	root  *Root
	pools []*state.Pool
	// cut are the nodes that borrow or have waiting pods for lack of addresses; next are the nodes
	// whose next pod will borrow or wait.
	cut, next []*state.NodeBlockStatus
	// has holds all nodes of cut and next.
	has map[*state.NodeBlockStatus]bool
	// borrowed are the addresses that the cut nodes borrow, except those of virtual machines.
	borrowed map[*state.Borrow]bool
}

// scarce reports whether a pool is short of blocks or addresses, now or soon, and no other pool
// makes up for it.
func (st *Remedies) scarce(p *state.Pool) bool {
	short := p.OutOfBlocks() || p.LowOnBlocks() || p.LowOnAddresses()
	if d := st.DemandOf(p); d != nil && !d.Covered(p) {
		short = true
	}
	return short
}

// findShortages joins scarce pools that serve the same nodes, and lists the nodes affected.
func (st *Remedies) findShortages() {
	var scarce []*state.Pool
	leader := map[*state.Pool]*state.Pool{}
	for _, p := range st.Pools { // by name, so that the first of several leads
		if st.scarce(p) {
			scarce = append(scarce, p)
			leader[p] = p
		}
	}
	if len(scarce) == 0 {
		return
	}
	find := func(p *state.Pool) *state.Pool {
		for leader[p] != p {
			p = leader[p]
		}
		return p
	}
	lacking := map[*state.Pool][]*state.NodeBlockStatus{}
	for _, h := range st.NodeStates {
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			if h.Node == nil {
				continue
			}
			mine := st.WorkloadPools(h.Node, f)
			lacks := (*state.NodeBlockStatus)(nil)
			for _, n := range h.BlockStatus {
				if n.Family == f && rootCause(n).Shortfall() && st.DoubtOf(n) == "" {
					mine, lacks = append(slices.Clip(mine), st.PoolsAtIssue(n)...), n
				}
			}
			var first *state.Pool
			for _, p := range mine {
				if leader[p] == nil {
					continue
				}
				p = find(p)
				if first == nil {
					first = p
				}
				if slices.Index(scarce, p) < slices.Index(scarce, first) {
					first, p = p, first
				}
				leader[p] = first
			}
			if lacks != nil && first != nil {
				lacking[first] = append(lacking[first], lacks)
			}
		}
	}
	found := map[*state.Pool]*shortage{}
	for _, p := range scarce {
		s := found[find(p)]
		if s == nil {
			s = &shortage{has: map[*state.NodeBlockStatus]bool{}, borrowed: map[*state.Borrow]bool{}}
			found[find(p)] = s
			s.root = st.root("shortage/"+find(p).Name, func(int) string { return st.shortageMessage(s) }, func() []Remedy { return st.shortageRemedies(s) })
		}
		s.pools = append(s.pools, p)
		s.root.Subject, s.root.Pools = state.PoolSubject(s.pools[0]), state.PoolsOf(s.pools...)
		st.shortages[p] = s
		for _, n := range lacking[p] {
			for _, b := range n.Borrowed {
				s.borrowed[b] = !staysBorrowed(b)
			}
			switch {
			case len(n.Borrowed)+len(n.Stuck) > 0:
				s.cut = append(s.cut, n)
			case n.Host.Schedulable:
				s.next = append(s.next, n)
			default:
				continue
			}
			s.has[n] = true
			s.root.Nodes = append(s.root.Nodes, n.Host.Name)
		}
	}
}

// shortageMessage describes the shortage, the nodes that hold the blocks, and the effect on other
// nodes.
func (st *Remedies) shortageMessage(s *shortage) string {
	parts := []string{st.whatIsShort(s)}
	var borrow, wait, next blocks.Names
	for _, n := range s.cut {
		if len(n.Stuck) > 0 {
			wait = append(wait, n.Host.Name)
		} else {
			borrow = append(borrow, n.Host.Name)
		}
	}
	for _, n := range s.next {
		next = append(next, n.Host.Name)
	}
	var who []string
	if len(wait) > 0 {
		who = append(who, "pods on "+wait.String()+" get no address")
	}
	if len(borrow) > 0 {
		text := fmt.Sprintf("%s %s", borrow, phrase.One(len(borrow), "borrows", "borrow"))
		if dropped := st.droppedText(func(b *state.Borrow) bool { return s.borrowed[b] }); dropped != "" {
			text += ", and " + dropped
		}
		who = append(who, text)
	}
	switch {
	case len(who) > 0:
		parts = append(parts, who...)
	case len(next) > 0:
		will := "borrow"
		if s.next[0].CannotAllocate() {
			will = "get no address"
		}
		parts = append(parts, fmt.Sprintf("the next pod on %s will %s", next, will))
	}
	return strings.Join(parts, "; ")
}

// whatIsShort names the scarce pools, their shortage, and the nodes that hold their blocks.
func (st *Remedies) whatIsShort(s *shortage) string {
	var out, full, low, small []*state.Pool
	for _, p := range s.pools {
		switch {
		case p.TooSmall():
			small = append(small, p)
		case p.Addrs.Available.IsZero() && !p.Disabled && p.Automatic:
			full = append(full, p)
		case p.OutOfBlocks():
			out = append(out, p)
		case p.LowOnBlocks():
			low = append(low, p)
		}
	}
	are := func(ps []*state.Pool) string {
		return state.PoolsOf(ps...).String() + phrase.One(len(ps), " is", " are")
	}
	reserved := ""
	for _, p := range s.pools {
		reserved += st.ReservedBy(p)
	}
	switch {
	case len(small) == len(s.pools):
		return are(small) + " smaller than one block, so no node can claim any"
	case len(full) > 0 && len(out) == 0:
		return are(full) + " out of addresses" + reserved
	case len(out)+len(full) > 0:
		out = append(out, full...)
		text := are(out) + " out of blocks"
		if holders := st.holders(out); holders != "" {
			text += ": " + holders
		}
		return text + reserved
	case len(low) > 0:
		p := low[0]
		text := fmt.Sprintf("%s has %s of %s blocks left", p.Name, p.BlocksLeft(), p.Slots.Capacity)
		if len(low) > 1 {
			text += ", and " + are(low[1:]) + " as low"
		}
		return text
	}
	p := s.pools[0]
	if d := st.DemandOf(p); d != nil {
		return fmt.Sprintf("%s has too few usable blocks (%s): its nodes (%d) will need %s when full", p.Name, d.Usable, d.Nodes, p.Needed)
	}
	return fmt.Sprintf("%s has %s of %s addresses left", p.Name, p.Addrs.Available, p.Addrs.Capacity)
}

// holders describes which nodes hold the blocks of some pools.
func (st *Remedies) holders(pools []*state.Pool) string {
	type holder struct {
		name string
		n    int
	}
	var all []holder
	total := 0
	for _, h := range st.NodeStates {
		n := 0
		for _, b := range h.Blocks {
			if slices.Contains(pools, b.Pool) {
				n++
			}
		}
		if total += n; n > 0 {
			all = append(all, holder{h.Name, n})
		}
	}
	rest := -total // blocks that no node owns
	for _, p := range pools {
		rest += len(p.Blocks)
	}
	if total == 0 {
		return ""
	}
	slices.SortStableFunc(all, func(a, b holder) int { return cmp.Compare(b.n, a.n) })
	var names blocks.Names
	for _, h := range all {
		names = append(names, h.name)
	}
	if len(all) <= 3 {
		count := fmt.Sprintf("all %d", total)
		switch {
		case rest > 0:
			count = fmt.Sprintf("%d of %d, and no node owns the rest", total, total+rest)
		case total == 1:
			count = "the only one"
		}
		return fmt.Sprintf("%s %s %s", names, phrase.One(len(all), "holds", "hold"), count)
	}
	count := fmt.Sprintf("all %d", total)
	if rest > 0 {
		count = fmt.Sprintf("%d of %d", total, total+rest)
	}
	text := fmt.Sprintf("%d nodes hold %s", len(all), count)
	if all[0].n > all[len(all)-1].n {
		text += fmt.Sprintf(", %s the most (%d)", all[0].name, all[0].n)
	}
	return text
}

// firstAid moves pods whose traffic is dropped by the owners of their blocks to nodes with free
// addresses; nil if no pod can move. The nodes still lack blocks, but the pods can be reached.
func (st *Remedies) firstAid(s *shortage, rehome Remedy, consents Consents) *Remedy {
	concerns := func(b *state.Borrow) bool { return slices.Contains(s.pools, b.Block.Pool) }
	if rehome.Manual || len(rehome.Commands) == 0 || st.droppedText(func(b *state.Borrow) bool { return s.borrowed[b] }) == "" {
		return nil
	}
	moving, _ := st.rehoming(concerns, consents)
	if !slices.ContainsFunc(moving, func(m Move) bool { return m.Elsewhere }) {
		return nil
	}
	rehome.Title = "first aid: restart the pods that borrow, so that they start on nodes with free addresses"
	rehome.Effect = st.rehomeEffect(concerns, moving) + "; nodes still lack blocks"
	rehome.Yield = &Yield{Pods: len(moving)}
	return &rehome
}

// shortageRemedies returns the ways to give blocks to the nodes that lack or will lack them.
// Remedies that end the harm immediately come first, then those without cost.
func (st *Remedies) shortageRemedies(s *shortage) (out []Remedy) {
	var rehome Remedy
	var consents Consents
	if slices.ContainsFunc(st.Borrows, func(b *state.Borrow) bool { return s.borrowed[b] && b.Workload != nil }) {
		rehome, consents = st.rehomePlan(s.pools, st.Borrows, func(b *state.Borrow) bool { return slices.Contains(s.pools, b.Block.Pool) })
	}
	then := func(r Remedy) Remedy {
		if r.Commands = append(r.Commands, rehome.Commands...); len(rehome.Commands) > 0 {
			r.Effect += "; then pods borrow no more"
			if r.Risk += "; pods that borrow restart"; strings.HasPrefix(r.Risk, "none") {
				r.Risk = "pods that borrow restart"
			}
			if consents.EvictSingletons {
				r.Risk += " without a replica"
			}
			if consents.CordonFull {
				r.Risk += "; nodes are cordoned"
			}
		} else if rehome.Manual {
			r.Title += "; then " + rehome.Title
		}
		return r
	}
	if r := st.firstAid(s, rehome, consents); r != nil {
		out = append(out, *r)
	}
	var empty, last, marked, ageless []*state.Block
	var vanished []string // nodes that no longer exist and hold blocks that cleaning up frees
	var due time.Time
	freed := blocks.Count{}
	needing := len(s.cut) + len(s.next)
	wanted := s.pools // the pools that would serve the nodes in need, if there are such nodes
	if needing > 0 {
		wanted = slices.DeleteFunc(slices.Clone(s.pools), func(p *state.Pool) bool {
			return !slices.ContainsFunc(slices.Concat(s.cut, s.next), func(n *state.NodeBlockStatus) bool { return slices.Contains(st.PoolsAtIssue(n), p) })
		})
	}
	flags := Shell(" --pool %s", strings.Join(state.PoolsOf(wanted...), ","))
	for _, p := range wanted {
		var releasable, deleted, spare []*state.Block
		for _, b := range p.Blocks {
			r := &b.Releasability
			switch {
			case st.Reserved.Covers(b.CIDR):
			case b.Used > 0:
				if host := b.Owner.Node(); !slices.Contains(vanished, host) && !st.slotsFreed(p, st.freedOf(host, p)).IsZero() {
					vanished = append(vanished, host)
				}
			case r.OK:
				releasable = append(releasable, b)
			case b.SoftDeleted:
				if st.FinishBlockBar(b).Code == "" {
					deleted = append(deleted, b)
				}
			case r.Code == state.RetainLast:
				if needing > 0 && st.LastBlock(b).OK {
					spare = append(spare, b)
				}
			case r.Code == state.RetainUnknownAge && r.After == nil:
				ageless = append(ageless, b)
			case r.Code == state.RetainYoung && r.After == nil && !r.EmptySince.IsZero():
				if at := r.Due.Std(); due.IsZero() || at.Before(due) {
					due = at
				}
			}
		}
		if n := st.slotsFreed(p, releasable); !n.IsZero() {
			empty, freed = append(empty, releasable...), freed.Add(n)
		}
		if !st.slotsFreed(p, deleted).IsZero() {
			marked = append(marked, deleted...)
		}
		if !st.slotsFreed(p, spare).IsZero() {
			last = append(last, spare...)
		}
	}
	if len(empty) > 0 {
		r := ReleaseBlock.with(flags)
		r.Title, r.Effect = "release the empty blocks: "+state.CIDRs(empty).String(), ofNeeded("blocks that can be claimed again", freed, needing)
		r.Yield = &Yield{Blocks: len(empty)}
		out = append(out, then(r))
	}
	if len(marked) > 0 {
		r := FinishDelete.with(flags)
		r.Title, r.Effect = "finish the deletion of marked objects that hold no address: "+state.CIDRs(marked).String(), ofNeeded("blocks that can be claimed again", len(marked), needing)
		r.Yield = &Yield{Blocks: len(marked)}
		out = append(out, then(r))
	}
	if len(vanished) > 0 {
		slices.Sort(vanished)
		out = append(out, then(st.cleanUp(vanished, flags)))
	}
	if r := st.endFinished(wanted); r != nil {
		out = append(out, *r)
	}
	switch {
	case len(empty) > 0:
	case len(last) > 0:
		r := ReleaseLastBlock.with(flags)
		r.Title, r.Yield = r.Title+": "+state.CIDRs(last).String(), &Yield{Blocks: len(last)}
		r.Effect = ofNeeded("blocks that nodes in need can claim", len(last), needing)
		var cordon blocks.Names
		for _, b := range last {
			if h := st.NodeState(b.Owner.Node()); !h.Node.Unschedulable && !slices.Contains(cordon, h.Name) {
				cordon = append(cordon, h.Name)
			}
		}
		if len(cordon) > 0 {
			r.Title += "; if other nodes have room for the pods there, cordon " + cordon.String() + " until the nodes in need have blocks"
			r.Risk = "a node that is not cordoned claims a block again for its next pod"
			r.Manual = true
		}
		out = append(out, then(r))
	case !due.IsZero() && needing > 0:
		r := ReleaseBlock.with(flags)
		r.Title = "wait until " + phrase.Time(due) + ", then release blocks that have been empty for " + phrase.Duration(st.Grace)
		r.Manual = true
		out = append(out, then(r))
	}
	if st.borrowingHelps(s) {
		r := UnsetStrict
		r.Title = "turn strict affinity off: no owner of a block drops the traffic to borrowed addresses"
		out = append(out, r)
	}
	if len(ageless) > 0 && !st.Cluster.Live {
		out = append(out, ByHand(fmt.Sprintf("read the blocks again with the time of their last write (empty blocks of unknown age: %d)", len(ageless)),
			"a report on them shows which can be claimed again", "none", "kubectl get ipamblocks.crd.projectcalico.org -o yaml --show-managed-fields"))
	}
	for _, p := range wanted {
		switch by := st.ReservedBy(p); {
		case p.TooSmall():
			out = append(out, ByHand(fmt.Sprintf("delete pool %s, which holds no block, and create it again with a blockSize from %d to %d", p.Name, p.CIDR.Bits(), p.CIDR.Addr().BitLen()),
				"nodes claim blocks of it with their next pods", "none: it has never assigned an address", Shell("kubectl get ippools %s -o yaml", p.Name)))
		case by != "":
			out = append(out, then(ByHand("delete or narrow the IPReservations, if their addresses are not used elsewhere"+by,
				ofNeeded("blocks that can be claimed", p.Slots.Reserved, needing), "pods get the addresses that were reserved", "kubectl get ipreservations -o yaml")))
		}
	}
	if slices.ContainsFunc(wanted, func(p *state.Pool) bool {
		d := st.DemandOf(p)
		return needing > 0 || d != nil && !d.Covered(p) || !st.Relieved(p, (*state.Pool).HasBlocks)
	}) {
		out = append(out, then(st.addPool(wanted, needing)))
	}
	if r := st.consolidation(s, rehome.Commands); r != nil {
		out = append(out, *r)
	}
	if len(out) == 0 {
		return muteLow(s.pools)
	}
	return out
}

// endFinished deletes the finished pods that hold addresses of short pools; nil without such pods.
func (st *Remedies) endFinished(short []*state.Pool) *Remedy {
	var nodes []string
	var pods []*blocks.Workload
	held := 0
	for _, a := range finished.Of(st.State) {
		if slices.Contains(short, a.Pool) {
			nodes, pods, held = append(nodes, a.Node), append(pods, a.Pods...), held+len(a.Refs)
		}
	}
	if held == 0 {
		return nil
	}
	r := DeleteFinishedOf(nodes[0], pods)
	if slices.Sort(nodes); len(slices.Compact(nodes)) > 1 {
		r = DeleteFinished
		r.Commands = []string{"calico-audit report --check ip/finished-pod"}
	}
	r.Effect = fmt.Sprintf("Calico's collector (or --leaked-ips) frees the addresses (%d) after its grace period", held)
	return &r
}

// ofNeeded counts blocks, and the blocks needed.
func ofNeeded(what string, n any, needing int) string {
	if needing == 0 {
		return fmt.Sprintf("%s: %v", what, n)
	}
	return fmt.Sprintf("%s: %v of %d needed", what, n, needing)
}

// muteLow is for pools that are reported low on addresses until their own pods end, although other
// pools replace them; nil if no pool is low.
func muteLow(pools []*state.Pool) []Remedy {
	flags := ""
	for _, p := range pools {
		if p.LowOnAddresses() {
			check := "pool/low-addresses"
			if p.Addrs.Available.IsZero() {
				check = "pool/exhausted"
			}
			flags += Shell(" --ignore check=%s,pool=%s", check, p.Name)
		}
	}
	if flags == "" {
		return nil
	}
	return []Remedy{ByHand("mute the finding: other pools for the same nodes have blocks left, and it ends when pods of this pool end",
		"reports count it as muted", "none: a lack of blocks in the other pools is a finding of its own", "calico-audit report"+flags)}
}

// slotsFreed counts the blocks of a pool that could be claimed if some of its empty blocks were
// deleted. Slots that are fully reserved, or that another block overlaps, do not count.
func (st *Remedies) slotsFreed(p *state.Pool, freed []*state.Block) blocks.Count {
	if len(freed) == 0 {
		return blocks.Count{}
	}
	is := map[*state.Block]bool{}
	for _, b := range freed {
		is[b] = true
	}
	kept := slices.DeleteFunc(slices.Clone(p.Blocks), func(b *state.Block) bool { return is[b] })
	return blocks.PoolSlots(p.Pool, p.Occupying(kept), st.Reserved).Free.Sub(p.Slots.Free)
}

// borrowingHelps reports whether pods that wait under strict affinity would get addresses without
// it, and receive their traffic. Other nodes' blocks must have free addresses. The setting applies
// to the whole cluster, so the topology must drop borrowed addresses in no pool for workloads, of
// either family.
func (st *Remedies) borrowingHelps(s *shortage) bool {
	loose := st.IPAM
	loose.StrictAffinity = false
	if !st.IPAM.StrictAffinity || loose.Rejected() != "" || st.FirstMissing(state.RouteReads) != nil ||
		!slices.ContainsFunc(s.cut, func(n *state.NodeBlockStatus) bool { return rootCause(n) == state.CauseStrict }) {
		return false
	}
	if slices.ContainsFunc(st.NodeStates, func(h *state.NodeState) bool { return h.Node != nil && h.Node.Windows }) {
		return false // Calico assigns addresses on Windows nodes only under strict affinity
	}
	free := false
	for _, p := range st.Pools { // the setting applies to all of them
		if !p.ServesWorkloads() {
			continue
		}
		if o := st.Forecast(p); !o.Whole || o.Dropped+o.Unknown > 0 {
			return false
		}
		free = free || slices.Contains(s.pools, p) && slices.ContainsFunc(p.Blocks, func(b *state.Block) bool { return b.Usable() && st.Unused(b) > 0 })
	}
	return free
}

// addPool is the remedy that adds a pool like the first of those that serve the most nodes. The new
// pool needs a block for each node in need, and enough spare blocks that neither it nor the other
// pools are reported short afterwards.
func (st *Remedies) addPool(short []*state.Pool, needing int) Remedy {
	p := short[0]
	for _, q := range short[1:] {
		if !p.SelectsNodesOf(q) && q.SelectsNodesOf(p) {
			p = q
		}
	}
	least := blocks.CountOf(max(needing+2, (needing*10+8)/9)) // see LowOnBlocks
	for _, q := range short {
		if lack := st.LackingBeside(q, p); lack.Cmp(least) > 0 {
			least = lack
		}
	}
	r := AddPool
	if p.ForServices() {
		r.Title = fmt.Sprintf("add a pool for Services (allowedUses: [LoadBalancer]), like %s, with a CIDR that nothing else uses", p.Name)
		r.Effect = "Services get addresses of it"
		r.Risk = "the network must route its CIDR to the nodes (BGPConfiguration's serviceLoadBalancerIPs)"
		r.Commands, r.Manifest = []string{Shell("kubectl get ippools %s -o yaml", p.Name)}, poolLike(p, p.CIDR.Bits())
		return r
	}
	r.Title = fmt.Sprintf("add a pool like %s for at least %s blocks, with a CIDR that nothing else uses", p.Name, least)
	if asking := slices.DeleteFunc(slices.Clone(short), func(q *state.Pool) bool { return !st.IsAskedFor(q) }); len(asking) > 0 {
		r.Title += "; and add its name to " + state.PoolsOf(asking...).String() + " where pods or their namespaces ask for that (cni.projectcalico.org/ipv4pools, ipv6pools)"
	}
	bits := p.BlockSize
	for bits > 0 && blocks.PowerOfTwo(p.BlockSize-bits).Cmp(least) < 0 {
		bits--
	}
	r.Commands, r.Manifest = []string{Shell("kubectl get ippools %s -o yaml", p.Name)}, poolLike(p, bits)
	return r
}

// poolLike returns the manifest of a pool with the settings of another one, for calicoctl.
func poolLike(p *state.Pool, bits int) string {
	spec := []string{fmt.Sprintf("cidr: CHANGE-ME/%d, blockSize: %d, ipipMode: %s, vxlanMode: %s, natOutgoing: %t", bits, p.BlockSize, cmp.Or(p.IPIP, blocks.EncapNever), cmp.Or(p.VXLAN, blocks.EncapNever), p.NATOutgoing)}
	add := func(name, value string, set bool) {
		if set {
			spec = append(spec, name+": "+value)
		}
	}
	uses := make([]string, len(p.Uses))
	for i, u := range p.Uses {
		uses[i] = string(u)
	}
	add("nodeSelector", strconv.Quote(p.NodeSelector), p.NodeSelector != "" && p.NodeSelector != "all()")
	add("namespaceSelector", strconv.Quote(p.NamespaceSelector), p.NamespaceSelector != "")
	add("allowedUses", "["+strings.Join(uses, ", ")+"]", !slices.Equal(uses, []string{string(blocks.UseWorkload), string(blocks.UseTunnel)}))
	add("assignmentMode", "Manual", !p.Automatic)
	add("disableBGPExport", "true", p.DisableBGPExport)
	return "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: CHANGE-ME}, spec: {" + strings.Join(spec, ", ") + "}}"
}
