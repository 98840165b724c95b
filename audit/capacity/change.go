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
	"github.com/calico-audit/calico-audit/blocks"
)

// How far the smallest change is looked for: further bits of a prefix or a block size, and
// further pools.
const (
	maxBits  = 16
	maxPools = 16
)

// changes finds the smallest changes with which a run that did not fit does, each tried by
// playing it again.
func (r *run) changes() (out []Change) {
	p := r.atIssue()
	if p == nil {
		return nil
	}
	// A node that holds as many blocks as it may claims none of a further pool, which is tried
	// last. One that such a pool keeps from another's empty block may be spared that.
	if limited := r.first == LimitBlocksOfNode && !r.a.reclaims; !limited && (p.BlockSize > p.CIDR.Bits() || p.CIDR.Bits() > 0) {
		out = append(out, r.widerChange(p)...)
		out = append(out, r.morePoolsChange(p)...)
	}
	out = append(out, r.blockSizeChange(p)...)
	return append(out, r.limitChange()...)
}

// atIssue is the pool that a change would be like: the last that the first address could
// have been of, or else one of the family that the usual pods need.
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

// with plays the run again in a changed world, until it is known not to fit, and returns it
// if it does.
func (r *run) with(change func(*world)) *run {
	w := *r.world
	w.trial = true
	change(&w)
	if again := w.simulate(r.q); again.out.Fits && !r.stopped() {
		return again
	}
	return nil
}

// leftLike counts the blocks that are left in all pools that serve what a pool serves.
func (r *run) leftLike(p *state.Pool) blocks.Count {
	left := blocks.Count{}
	for _, q := range r.a.pools {
		if q.Family() == p.Family() && q.Allows(blocks.UseWorkload) && q.Automatic {
			left = left.Add(r.a.left(q))
		}
	}
	return left
}

// withPools plays the run again with pools like another, of a prefix length, and returns it
// if it fits, whatever the pools are called: Calico tries pools in the order of their names.
func (r *run) withPools(like *state.Pool, bits, n int) (again *run) {
	for _, name := range []string{"!%d", "~%d"} { // before all others, and after them
		if again = r.with(r.add(like, bits, n, name)); again == nil {
			return nil
		}
	}
	return again
}

// add adds pools like another, of a prefix length and with names of a format. Where no pool
// selects the nodes, they select all.
func (r *run) add(like *state.Pool, bits, n int, name string) func(*world) {
	return func(w *world) {
		w.pools = slices.Clone(w.pools)
		for i := range n {
			bare := *like.Pool
			bare.Name = fmt.Sprintf(name, i)
			bare.CIDR = elsewhere(w.pools, bits, like.Family())
			p := &state.Pool{Pool: &bare, NodeSelection: like.NodeSelection, NamespaceSelection: like.NamespaceSelection}
			if r.unselected() {
				p.NodeSelection = &state.Selector{}
			}
			w.pools = append(w.pools, p)
		}
	}
}

// unselected reports whether no pool selects the nodes, so that one that is added must not
// select like another.
func (r *run) unselected() bool { return len(r.short) == 0 }

// nodesOf names the nodes that a pool which is added like another selects.
func (r *run) nodesOf(like *state.Pool) string {
	if r.unselected() {
		return "all nodes"
	}
	return "the same nodes as " + like.Name
}

// elsewhere returns a CIDR that no pool overlaps, to try a pool with: of the reserved
// 240.0.0.0/4, or from fdff::/16 on, where no cluster has its own, or of wherever there is
// room; invalid if there is none.
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
				addr = end // of two CIDRs that overlap one holds the other
			}
		}
	}
	return netip.Prefix{}
}

// smallest returns the run with which it fits at the least of n growing changes: with one
// that is enough all larger ones are, too. nil if none is.
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

// widerChange finds the smallest pool.
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

// blockSizeChange finds the largest blocks with which it fits and, if these leave no block
// for another node, the largest that do.
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

// maxLimit is by how much the block limit is raised at most.
const maxLimit = 64

// limitChange finds the lowest block limit with which it fits, if a limit is in the way:
// the lowest that no node reaches, for a higher one changes nothing. So it is played once,
// under the highest.
func (r *run) limitChange() []Change {
	e := cmp.Or(r.out.demand.First, r.out.FirstRefusal, r.out.FirstBorrow)
	if e == nil || e.Limit != LimitBlocksOfNode {
		return nil
	}
	now := r.config.BlockLimit()
	again := r.with(func(w *world) { w.config.MaxBlocksPerHost = now + maxLimit })
	if again == nil {
		return nil
	}
	return []Change{{Kind: "max-blocks", Title: fmt.Sprintf("raise maxBlocksPerHost from %d to %d", now, max(again.a.most, now)+1), Left: again.leftLike(r.atIssue())}}
}
