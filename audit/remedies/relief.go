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

// relief holds the facts that the remedies of one shortage share.
type relief struct {
	*Remedies
	s *shortage
	// pools are the shortage's pools that serve the nodes in need, or all its pools if no node is
	// in need. flags limit a repair to these pools.
	pools []*state.Pool
	flags string
	// needing counts the nodes in need.
	needing int
	// rehome restarts the pods that borrow, once the nodes have blocks; zero if no pod borrows.
	rehome   Remedy
	consents Consents
	freeable
}

// freeable holds blocks whose deletion lets a node claim one, by the way to delete them.
type freeable struct {
	empty []*state.Block // releasable
	slots blocks.Count   // that nodes can claim once the empty blocks are released
	// marked are marked deleted and hold no address. last are the last blocks of nodes that can do
	// without. undated are empty, but the files do not show since when.
	marked, last, undated []*state.Block
	// due is when the next empty block is old enough; zero if there is none.
	due time.Time
	// vanished are the nodes that no longer exist and hold blocks that cleaning up frees.
	vanished []string
}

// shortageRemedies returns the ways to give blocks to the nodes that lack or will lack them.
// Remedies that end the harm immediately come first, then those without cost.
func (st *Remedies) shortageRemedies(s *shortage) []Remedy {
	r := &relief{Remedies: st, s: s, pools: s.pools, needing: len(s.cut) + len(s.next)}
	if slices.ContainsFunc(st.Borrows, func(b *state.Borrow) bool { return s.borrowed[b] && b.Workload != nil }) {
		r.rehome, r.consents = st.rehomePlan(s.pools, st.Borrows, r.concerns)
	}
	if r.needing > 0 {
		r.pools = slices.DeleteFunc(slices.Clone(s.pools), func(p *state.Pool) bool {
			return !slices.ContainsFunc(slices.Concat(s.cut, s.next), func(n *state.NodeBlockStatus) bool { return slices.Contains(st.PoolsAtIssue(n), p) })
		})
	}
	r.flags = Shell(" --pool %s", strings.Join(state.PoolsOf(r.pools...), ","))
	for _, p := range r.pools {
		r.addFreeable(p)
	}
	var out []Remedy
	for _, way := range []func() *Remedy{
		r.firstAid, r.releaseEmpty, r.finishMarked, r.cleanUpVanished, r.endFinished, r.releaseLast, r.waitForAge, r.borrowAgain, r.readAgain,
	} {
		if found := way(); found != nil {
			out = append(out, *found)
		}
	}
	for _, p := range r.pools {
		out = append(out, r.reshape(p)...)
	}
	for _, way := range []func() *Remedy{r.addPools, r.consolidate} {
		if found := way(); found != nil {
			out = append(out, *found)
		}
	}
	if len(out) == 0 {
		return muteLow(s.pools)
	}
	return out
}

// concerns reports whether an address is borrowed from a pool of the shortage.
func (r *relief) concerns(b *state.Borrow) bool { return slices.Contains(r.s.pools, b.Block.Pool) }

// addFreeable groups the blocks of a pool by the way in which they can be deleted.
func (r *relief) addFreeable(p *state.Pool) {
	var empty, marked, last []*state.Block
	for _, b := range p.Blocks {
		rel := &b.Releasability
		switch {
		case r.Reserved.Covers(b.CIDR):
		case b.Used > 0:
			if host := b.Owner.Node(); !slices.Contains(r.vanished, host) && !r.slotsFreed(p, r.freedOf(host)).IsZero() {
				r.vanished = append(r.vanished, host)
			}
		case rel.OK:
			empty = append(empty, b)
		case b.SoftDeleted:
			if r.FinishBlockBar(b).Code == "" {
				marked = append(marked, b)
			}
		case rel.Code == state.RetainLast:
			if r.needing > 0 && r.LastBlock(b).OK {
				last = append(last, b)
			}
		case rel.Code == state.RetainUnknownAge && rel.After == nil:
			r.undated = append(r.undated, b)
		case rel.Code == state.RetainYoung && rel.After == nil && !rel.EmptySince.IsZero():
			if at := rel.Due.Std(); r.due.IsZero() || at.Before(r.due) {
				r.due = at
			}
		}
	}
	if n := r.slotsFreed(p, empty); !n.IsZero() {
		r.empty, r.slots = append(r.empty, empty...), r.slots.Add(n)
	}
	if !r.slotsFreed(p, marked).IsZero() {
		r.marked = append(r.marked, marked...)
	}
	if !r.slotsFreed(p, last).IsZero() {
		r.last = append(r.last, last...)
	}
}

// then adds the restart of borrowing pods to a remedy that gives nodes blocks.
func (r *relief) then(m Remedy) *Remedy {
	if m.Commands = append(m.Commands, r.rehome.Commands...); len(r.rehome.Commands) > 0 {
		m.Effect += "; then pods stop borrowing"
		if m.Risk += "; pods that borrow restart"; strings.HasPrefix(m.Risk, "none") {
			m.Risk = "pods that borrow restart"
		}
		if r.consents.EvictSingletons {
			m.Risk += " without a replica"
		}
		if r.consents.CordonFull {
			m.Risk += "; nodes are cordoned"
		}
	} else if r.rehome.Manual {
		m.Title += "; then " + r.rehome.Title
	}
	return &m
}

// firstAid moves pods whose traffic is dropped by the owners of their blocks to nodes with free
// addresses; nil if no pod can move. The nodes still lack blocks, but the pods can be reached.
func (r *relief) firstAid() *Remedy {
	if r.rehome.Manual || len(r.rehome.Commands) == 0 || r.droppedText(func(b *state.Borrow) bool { return r.s.borrowed[b] }) == "" {
		return nil
	}
	moving, _ := r.rehoming(r.concerns, r.consents)
	if !slices.ContainsFunc(moving, func(m Move) bool { return m.Elsewhere }) {
		return nil
	}
	m := r.rehome
	m.Title = "first aid: restart the pods that borrow, so that they start on nodes with free addresses"
	m.Effect = r.rehomeEffect(r.concerns, moving) + "; nodes still lack blocks"
	m.Yield = &Yield{Pods: len(moving)}
	return &m
}

func (r *relief) releaseEmpty() *Remedy {
	if len(r.empty) == 0 {
		return nil
	}
	m := ReleaseBlock.with(r.flags)
	m.Title, m.Effect = "release the empty blocks: "+state.CIDRs(r.empty).String(), r.ofNeeded("blocks that can be claimed again", r.slots)
	m.Yield = &Yield{Blocks: len(r.empty)}
	return r.then(m)
}

func (r *relief) finishMarked() *Remedy {
	if len(r.marked) == 0 {
		return nil
	}
	m := FinishDelete.with(r.flags)
	m.Title, m.Effect = "finish the deletion of marked objects that hold no address: "+state.CIDRs(r.marked).String(), r.ofNeeded("blocks that can be claimed again", len(r.marked))
	m.Yield = &Yield{Blocks: len(r.marked)}
	return r.then(m)
}

func (r *relief) cleanUpVanished() *Remedy {
	if len(r.vanished) == 0 {
		return nil
	}
	slices.Sort(r.vanished)
	return r.then(r.cleanUp(r.vanished, r.flags))
}

// endFinished deletes the finished pods that hold addresses of the pools.
func (r *relief) endFinished() *Remedy {
	var nodes []string
	var pods []*blocks.Workload
	held := 0
	for _, a := range finished.Of(r.State) {
		if slices.Contains(r.pools, a.Pool) {
			nodes, pods, held = append(nodes, a.Node), append(pods, a.Pods...), held+len(a.Refs)
		}
	}
	if held == 0 {
		return nil
	}
	m := DeleteFinishedOf(nodes[0], pods)
	if slices.Sort(nodes); len(slices.Compact(nodes)) > 1 {
		m = DeleteFinished
		m.Commands = []string{"calico-audit report --check ip/finished-pod"}
	}
	m.Effect = fmt.Sprintf("Calico's collector (or --leaked-ips) frees the addresses (%d) after its grace period", held)
	return &m
}

// releaseLast releases last blocks. That is worth the risk only if no empty block can be released.
func (r *relief) releaseLast() *Remedy {
	if len(r.empty) > 0 || len(r.last) == 0 {
		return nil
	}
	m := ReleaseLastBlock.with(r.flags)
	m.Title, m.Yield = m.Title+": "+state.CIDRs(r.last).String(), &Yield{Blocks: len(r.last)}
	m.Effect = r.ofNeeded("blocks that nodes in need can claim", len(r.last))
	var cordon blocks.Names
	for _, b := range r.last {
		if h := r.NodeState(b.Owner.Node()); !h.Node.Unschedulable && !slices.Contains(cordon, h.Name) {
			cordon = append(cordon, h.Name)
		}
	}
	if len(cordon) > 0 {
		m.Title += "; if other nodes have room for the pods there, cordon " + cordon.String() + " until the nodes in need have blocks"
		m.Risk = "a node that is not cordoned claims a block again for its next pod"
		m.Manual = true
	}
	return r.then(m)
}

// waitForAge releases blocks that have not been empty for long enough yet, if no other block can be
// released.
func (r *relief) waitForAge() *Remedy {
	if len(r.empty)+len(r.last) > 0 || r.due.IsZero() || r.needing == 0 {
		return nil
	}
	m := ReleaseBlock.with(r.flags)
	m.Title = "wait until " + phrase.Time(r.due) + ", then release blocks that have been empty for " + phrase.Duration(r.Grace)
	m.Manual = true
	return r.then(m)
}

// borrowAgain turns strict affinity off.
func (r *relief) borrowAgain() *Remedy {
	if !r.borrowingHelps(r.s) {
		return nil
	}
	m := UnsetStrict
	m.Title = "turn strict affinity off: no owner of a block drops the traffic to borrowed addresses"
	return &m
}

// readAgain makes a dump that tells the age of the empty blocks.
func (r *relief) readAgain() *Remedy {
	if len(r.undated) == 0 || r.Cluster.Live {
		return nil
	}
	m := ByHand(fmt.Sprintf("read the blocks again with the time of their last write (empty blocks of unknown age: %d)", len(r.undated)),
		"a report on them shows which can be claimed again", "none", "kubectl get ipamblocks.crd.projectcalico.org -o yaml --show-managed-fields")
	return &m
}

// reshape changes a pool that is smaller than one block, or whose addresses are reserved.
func (r *relief) reshape(p *state.Pool) []Remedy {
	switch by := r.ReservedBy(p); {
	case p.TooSmall():
		return []Remedy{ByHand(fmt.Sprintf("delete pool %s, which holds no block, and create it again with a blockSize from %d to %d", p.Name, p.CIDR.Bits(), p.CIDR.Addr().BitLen()),
			"nodes claim blocks of it with their next pods", "none: it has never assigned an address", Shell("kubectl get ippools %s -o yaml", p.Name))}
	case by != "":
		return []Remedy{*r.then(ByHand("delete or narrow the IPReservations, if their addresses are not used elsewhere"+by,
			r.ofNeeded("blocks that can be claimed", p.Slots.Reserved), "pods get the addresses that were reserved", "kubectl get ipreservations -o yaml"))}
	}
	return nil
}

// addPools adds a pool, unless the existing ones suffice.
func (r *relief) addPools() *Remedy {
	if len(r.pools) == 0 || r.needing == 0 && !slices.ContainsFunc(r.pools, func(p *state.Pool) bool {
		d := r.DemandOf(p)
		return d != nil && !d.Covered(p) || !r.Relieved(p, (*state.Pool).HasBlocks)
	}) {
		return nil
	}
	return r.then(r.addPool(r.pools, r.needing))
}

func (r *relief) consolidate() *Remedy { return r.consolidation(r.s, r.rehome.Commands) }

// ofNeeded counts blocks, and the blocks needed.
func (r *relief) ofNeeded(what string, n any) string {
	if r.needing == 0 {
		return fmt.Sprintf("%s: %v", what, n)
	}
	return fmt.Sprintf("%s: %v of %d needed", what, n, r.needing)
}

// muteLow is for pools that are low on addresses although other pools have replaced them: the
// finding lasts until the pool's own pods end. It returns nil if no pool is low.
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
// to the whole cluster, so no workload pool of either family may be in a topology that drops
// traffic to borrowed addresses.
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
