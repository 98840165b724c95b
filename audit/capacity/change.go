package capacity

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/selectors"
	"github.com/calico-audit/calico-audit/blocks"
)

// Limits of the search for changes: more bits of a prefix or block size, and more pools.
const (
	maxBits  = 16
	maxPools = 16
)

// changes returns the smallest changes that make a failed run fit. It simulates each one.
func (r *run) changes() (out []Change) {
	p := r.atIssue()
	if p == nil {
		return nil
	}
	// If Calico tries an additional pool last, a node at its block limit cannot claim from it. From
	// v3.32 on the pool may still help, because it saves other nodes from taking over empty blocks.
	if limited := r.first == LimitBlocksOfNode && !r.a.reclaims; !limited && (p.BlockSize > p.CIDR.Bits() || p.CIDR.Bits() > 0) {
		out = append(out, r.widerChange(p)...)
		out = append(out, r.morePoolsChange(p)...)
	}
	out = append(out, r.blockSizeChange(p)...)
	return append(out, r.limitChange()...)
}

// atIssue returns the pool to model changes on. It is the last pool that could have provided the
// first missing address, else a pool of a family that the usual pods need.
func (r *run) atIssue() *state.Pool {
	if n := len(r.short); n > 0 {
		return r.short[n-1].Pool
	}
	for _, p := range r.pools {
		if p.ServesWorkloads() && p.Automatic && slices.Contains(r.kinds.usual.families, p.Family()) {
			return p
		}
	}
	return nil
}

// with runs the simulation again in a changed world, and returns the run if it fits. It
// stops as soon as the run cannot fit.
func (r *run) with(change func(*world)) *run {
	w := *r.world
	w.trial = true
	change(&w)
	if again := w.simulate(r.q); again.out.Fits && !r.stopped() {
		return again
	}
	return nil
}

// leftLike counts the blocks left in all pools that can serve the same workloads as p.
func (r *run) leftLike(p *state.Pool) blocks.Count {
	left := blocks.Count{}
	for _, q := range r.a.pools {
		if q.Family() == p.Family() && q.Allows(blocks.UseWorkload) && q.Automatic {
			left = left.Add(r.a.left(q))
		}
	}
	return left
}

// withPools runs the simulation with n additional pools like another one, with prefixes of
// bits length. Calico tries pools in the order of their names, so the run must fit with
// names before and after all existing ones.
func (r *run) withPools(like *state.Pool, bits, n int) (again *run) {
	for _, name := range []string{"!%d", "~%d"} { // before and after all other names
		if again = r.with(r.add(like, bits, n, name)); again == nil {
			return nil
		}
	}
	return again
}

// add returns a change that adds n pools like another, with names from a format. If no pool
// selects the nodes, the added pools select all nodes.
func (r *run) add(like *state.Pool, bits, n int, name string) func(*world) {
	return func(w *world) {
		w.pools = slices.Clone(w.pools)
		for i := range n {
			bare := *like.Pool
			bare.Name = fmt.Sprintf(name, i)
			bare.CIDR = elsewhere(w.pools, bits, like.Family())
			p := &state.Pool{Pool: &bare, NodeSelection: like.NodeSelection, NamespaceSelection: like.NamespaceSelection}
			if r.unselected() {
				p.NodeSelection = &selectors.Selector{}
			}
			w.pools = append(w.pools, p)
		}
	}
}

// unselected reports whether no pool selects the nodes. An added pool must then not copy a
// selector.
func (r *run) unselected() bool { return len(r.short) == 0 }

// nodesOf describes the nodes that a pool added like another selects.
func (r *run) nodesOf(like *state.Pool) string {
	if r.unselected() {
		return "all nodes"
	}
	return "the same nodes as " + like.Name
}

// elsewhere returns a free CIDR for trying a pool. It prefers the reserved 240.0.0.0/4, or
// fdff::/16 and above, which clusters do not use, then any free range; invalid if there is
// none.
func elsewhere(pools []*state.Pool, bits int, f blocks.Family) netip.Prefix {
	from := []string{"240.0.0.0", "0.0.0.0"}
	if f == blocks.IPv6 {
		from = []string{"fdff::", "::"}
	}
	for _, base := range from {
		for addr := netip.MustParseAddr(base); addr.IsValid(); {
			cidr := netip.PrefixFrom(addr, bits).Masked()
			i := slices.IndexFunc(pools, func(p *state.Pool) bool { return p.CIDR.Overlaps(cidr) })
			if i < 0 {
				return cidr
			}
			addr = netipx.PrefixLastIP(cidr).Next()
			if end := netipx.PrefixLastIP(pools[i].CIDR).Next(); !end.IsValid() || addr.Less(end) {
				addr = end // of two overlapping CIDRs one contains the other
			}
		}
	}
	return netip.Prefix{}
}

// smallest returns the smallest of n growing changes that fits, and its run. It assumes
// that every larger change also fits. The run is nil if no change fits.
func smallest(n int, try func(i int) *run) (least int, found *run) {
	runs := make([]*run, n)
	least = sort.Search(n, func(i int) bool {
		runs[i] = try(i)
		return runs[i] != nil
	})
	if least == n {
		return n, nil
	}
	return least, runs[least]
}

// widerChange returns the smallest prefix for an additional pool that fits.
func (r *run) widerChange(p *state.Pool) []Change {
	i, again := smallest(min(maxBits+1, p.BlockSize-4), func(i int) *run { return r.withPools(p, p.BlockSize-i, 1) })
	if again == nil {
		return nil
	}
	return []Change{{
		Kind: "prefix", Pool: p.Name, Left: again.leftLike(p),
		Title: fmt.Sprintf("add a pool of /%d or larger (%s of /%d), for %s", p.BlockSize-i, phrase.PluralCount(blocks.PowerOfTwo(i), "block"), p.BlockSize, r.nodesOf(p)),
	}}
}

func (r *run) morePoolsChange(p *state.Pool) []Change {
	i, again := smallest(maxPools, func(i int) *run { return r.withPools(p, p.CIDR.Bits(), i+1) })
	if again == nil {
		return nil
	}
	title := fmt.Sprintf("add a second pool of /%d like %s", p.CIDR.Bits(), p.Name)
	if i > 0 {
		title = fmt.Sprintf("add %d pools of /%d like %s", i+1, p.CIDR.Bits(), p.Name)
	}
	if r.unselected() {
		title += ", for " + r.nodesOf(p)
	}
	return []Change{{Kind: "pools", Pool: p.Name, Left: again.leftLike(p), Title: title}}
}

// blockSizeChange returns the largest block size that fits. If that leaves no block for
// another node, it also returns the largest one that does.
func (r *run) blockSizeChange(p *state.Pool) (out []Change) {
	if len(r.rebuilt) > 0 || slices.Index(r.pools, p) < 0 {
		return nil
	}
	for bits := p.BlockSize + 1; bits <= min(p.BlockSize+maxBits, p.CIDR.Addr().BitLen()); bits++ {
		again := r.with(func(w *world) { w.replace(p, bits) })
		if again == nil {
			continue
		}
		left := again.leftLike(p)
		out = append(out, Change{
			Kind: "block-size", Pool: p.Name, Left: left,
			Title: fmt.Sprintf("replace %s by a pool of the same CIDR with blocks of /%d: the size of a pool's blocks cannot change, and all its pods start again", p.Name, bits),
		})
		if !left.IsZero() {
			break
		}
	}
	return out
}

// maxLimit is the largest increase of the block limit to try.
const maxLimit = 64

// limitChange returns the lowest block limit that fits, if a limit caused the failure. The
// lowest such limit is one that no node reaches, so a single run with the highest limit
// finds it.
func (r *run) limitChange() []Change {
	e := cmp.Or(r.out.demand.First, r.out.FirstRefusal, r.out.FirstBorrow)
	if e == nil || e.Limit != LimitBlocksOfNode {
		return nil
	}
	now := r.config.BlockLimit()
	higher := r.config
	if higher.MaxBlocksPerHost = now + 1; higher.Rejected() != "" {
		return nil // Calico rejects the setting while strict affinity is off
	}
	again := r.with(func(w *world) { w.config.MaxBlocksPerHost = now + maxLimit })
	if again == nil {
		return nil
	}
	return []Change{{Kind: "max-blocks", Title: fmt.Sprintf("raise maxBlocksPerHost from %d to %d", now, max(again.a.most, now)+1), Left: again.leftLike(r.atIssue())}}
}
