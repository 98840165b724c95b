package capacity

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// Request asks for one address, as the CNI plugin does for a pod and calico/node for a
// tunnel.
type Request struct {
	// Node is the requesting node.
	Node   string
	Family blocks.Family
	Use    blocks.Use
	// Namespace is the pod's namespace; nil for a tunnel, or if the namespace is unknown.
	Namespace *blocks.Namespace
	// Pools are the CIDRs of the requested pools, in order. If empty, all pools that select
	// the node and the namespace are used.
	Pools []netip.Prefix
}

// Own reports whether the address is from a block of the requesting node.
func (r Assigned) Own(node string) bool { return r.Addr.IsValid() && r.Owner.Node() == node }

func refused(l Limit, format string, a ...any) Assigned {
	return Assigned{Limit: l, Reason: fmt.Sprintf(format, a...)}
}

// Assign assigns an address (libcalico-go ipam/ipam.go, autoAssign).
func (a *Allocator) Assign(r Request) Assigned {
	n := a.nodes[r.Node]
	switch {
	case n == nil:
		return refused(LimitSelector, "node %q does not exist", r.Node)
	case n.Windows && !a.config.StrictAffinity: // GetIPAMConfig
		return refused(LimitSelector, "Calico assigns nothing on Windows nodes without strict affinity")
	}
	e := a.eligible(n, r)
	if len(e.allowed) == 0 {
		return e.refusal
	}
	if owner := n.owner(); e.mine == nil || e.changes != a.changes[owner] {
		e.full, e.changes = 0, a.changes[owner]
		e.mine = a.affineBlocks(n, r.Family, e)
	}
	mine, limit := e.mine, a.config.BlockLimit()
	for _, c := range mine[e.full:] {
		if !c.full {
			if b := a.affineBlock(n, c); b != nil && a.numFree(b) > 0 {
				return a.assigned(b, false)
			}
			c.full = true
		}
		e.full++
	}
	if len(mine) >= limit {
		return refused(LimitBlocksOfNode, "the node holds %d of at most %d blocks, and they are full", len(mine), limit)
	}
	a.most = max(a.most, len(mine))
	if !a.config.AutoAllocateBlocks {
		return refused(LimitNotAutomatic, "nodes may not claim blocks by themselves (autoAllocateBlocks)")
	}
	b, again := a.claimBlock(n, e.allowed)
	switch {
	case again:
		return Assigned{Again: true}
	case b != nil:
		return a.assigned(b, true)
	case a.config.StrictAffinity:
		return refused(LimitBlocks, "no block is left in %s, and strict affinity is on", poolNames(e.allowed))
	}
	if b := a.lender(n, e.allowed); b != nil {
		got := a.assigned(b, false)
		got.Limit, got.Reason = LimitBlocks, "no block is left in "+poolNames(e.allowed)
		return got
	}
	return refused(LimitAddresses, "neither a block nor an address is left in %s", poolNames(e.allowed))
}

func (a *Allocator) assigned(b *block, claimed bool) Assigned {
	return Assigned{Addr: a.take(b), Block: b.cidr, Owner: b.owner, Claimed: claimed}
}

// eligible returns the pools for a request (determinePools, filterPoolsByUse).
func (a *Allocator) eligible(n *node, r Request) *eligible {
	if len(r.Pools) > 0 {
		return a.requested(r)
	}
	key := eligibleKey{r.Family, r.Use, r.Namespace}
	e, known := n.eligible[key]
	if !known {
		e = a.selected(n, r)
		n.eligible[key] = e
	}
	return e
}

func (a *Allocator) requested(r Request) *eligible {
	e := &eligible{}
	for _, cidr := range r.Pools {
		var found *pool
		for _, p := range a.pools { // of several pools with the same CIDR, Calico uses the last by name
			if p.CIDR == cidr {
				found = p
			}
		}
		if found == nil || found.Family() != r.Family {
			return &eligible{refusal: refused(LimitSelector, "pool %s is requested, and assigns no addresses", cidr)}
		}
		e.selecting = append(e.selecting, found)
	}
	return e.forUse(r.Use)
}

func (a *Allocator) selected(n *node, r Request) *eligible {
	e := &eligible{}
	for _, p := range a.pools {
		if p.Family() != r.Family || !p.Automatic {
			continue
		}
		if err := p.NodeSelection.Err; err != nil {
			return &eligible{refusal: refused(LimitSelector, "pool %s: %v", p.Name, err)}
		}
		if !p.SelectsNode(n.Node) {
			continue
		}
		if err := p.NamespaceSelection.Err; err != nil {
			return &eligible{refusal: refused(LimitSelector, "pool %s: %v", p.Name, err)}
		}
		if p.SelectsNamespace(r.Namespace) {
			e.selecting = append(e.selecting, p)
		}
	}
	return e.forUse(r.Use)
}

func (e *eligible) forUse(u blocks.Use) *eligible {
	for _, p := range e.selecting {
		if p.Allows(u) {
			e.allowed = append(e.allowed, p)
		}
	}
	if len(e.allowed) == 0 {
		e.refusal = refused(LimitSelector, "no pool that selects the node allows this use")
	}
	return e
}

// affineBlocks returns a node's affinities in the pools of a request, by name. It releases
// the node's empty blocks in pools that no longer select it (prepareAffinityBlocksForHost).
func (a *Allocator) affineBlocks(n *node, f blocks.Family, e *eligible) (mine []*claim) {
	owner := n.owner()
	var give []*claim
	for _, c := range a.affinities[owner] {
		if blocks.FamilyOf(c.cidr.Addr()) != f || c.softDeleted || c.unlabelled && a.labelled {
			continue
		}
		in := func(p *pool) bool { return p.CIDR.Contains(c.cidr.Addr()) }
		switch {
		case slices.ContainsFunc(e.allowed, in):
			mine = append(mine, c)
		case !slices.ContainsFunc(e.selecting, in):
			give = append(give, c)
		}
	}
	for _, c := range give {
		if p := a.poolAt(c.cidr.Addr()); p != nil && p.NodeSelection.Err == nil && !p.SelectsNode(n.Node) {
			a.releaseBlock(owner, c.cidr)
		}
	}
	return mine
}

// affineBlock returns the block of a node's affinity, and creates it if it does not exist.
// It returns nil if the block has another owner or is fully reserved (findOrClaimBlock,
// getBlockFromAffinity).
func (a *Allocator) affineBlock(n *node, c *claim) *block {
	if a.reserved.Covers(c.cidr) {
		return nil
	}
	return a.blockOf(n, n.owner(), c)
}

func (a *Allocator) blockOf(n *node, owner blocks.Owner, c *claim) *block {
	b := a.getBlock(c.cidr)
	switch {
	case b == nil:
		b = a.newBlock(n, c.cidr)
		a.addBlock(b)
		a.write(owner, c)
	case b.owner != owner:
		a.deleteClaim(owner, c)
		return nil
	case !c.confirmed:
		a.write(owner, c)
	}
	c.confirmed = true
	return b
}

// newBlock returns a new block of a node. Windows reserves the first three addresses and
// the last (cni-plugin/pkg/ipamplugin/ipam_plugin.go).
func (a *Allocator) newBlock(n *node, cidr netip.Prefix) *block {
	b := &block{cidr: cidr, owner: n.owner(), claimed: a.now}
	size := min(cidr.Addr().BitLen()-cidr.Bits(), 30)
	if a.queues[size] == nil {
		for o := range int32(1) << size {
			a.queues[size] = append(a.queues[size], o)
		}
	}
	b.free = slices.Clip(a.queues[size])
	if n.Windows && blocks.FamilyOf(cidr.Addr()) == blocks.IPv4 {
		b.free = b.free[min(3, len(b.free)):]
		b.free = b.free[:max(len(b.free)-1, 0)]
	}
	return b
}

// claimBlock claims another block for a node (findUsableBlock, and the rest of
// findOrClaimBlock); nil if no block is left. again is true if the attempt only finished
// the deletion of a half-deleted affinity.
func (a *Allocator) claimBlock(n *node, pools []*pool) (b *block, again bool) {
	owner := n.owner()
	for range 100 { // datastoreRetries
		cidr, ok := a.candidate(n, owner, pools)
		if !ok {
			return nil, false
		}
		had := slices.ContainsFunc(a.affinities[owner], func(c *claim) bool { return c.cidr == cidr })
		c := a.getClaim(owner, cidr)
		switch {
		case c == nil && had:
			return nil, true
		case c == nil:
			c = &claim{name: blocks.AffinityName(n.Name, cidr), cidr: cidr}
			a.addClaim(owner, c)
		case c.unstated: // Calico first makes it pending (getPendingAffinity)
			a.write(owner, c)
		}
		if b := a.blockOf(n, owner, c); b != nil {
			return b, false
		}
	}
	return nil, false
}

// candidate returns the CIDR that a node would claim next. It takes the first pool with a
// candidate, and in it the first CIDR, in the node's order, that has no block or is the node's own
// block with room. If there is none, from v3.32 on, it releases an empty block of another node.
func (a *Allocator) candidate(n *node, owner blocks.Owner, pools []*pool) (netip.Prefix, bool) {
	for _, p := range pools {
		best, ok := a.firstClaimable(p, n.Name)
		for _, b := range a.owned[owner] {
			if p.has(b) && !b.reserved && a.numFree(b) > 0 && (!ok || sooner(a.start(p, n.Name), b.cidr.Addr(), best.Addr())) {
				best, ok = b.cidr, true
			}
		}
		if ok {
			return best, true
		}
	}
	if !a.reclaims {
		return netip.Prefix{}, false
	}
	for _, p := range pools {
		for b := range inOrder(p.empty, a.start(p, n.Name)) {
			if a.releaseBlock(b.owner, b.cidr) {
				return b.cidr, true
			}
		}
	}
	return netip.Prefix{}, false
}

// lender returns the first block with room, in a node's order, of any owner.
func (a *Allocator) lender(n *node, pools []*pool) *block {
	for _, p := range pools {
		for b := range inOrder(p.lending, a.start(p, n.Name)) {
			if a.getBlock(b.cidr) != nil {
				return b
			}
		}
	}
	return nil
}

func poolNames(pools []*pool) string {
	text := ""
	for i, p := range pools {
		if i > 0 {
			text += ", "
		}
		text += p.Name
	}
	return text
}
