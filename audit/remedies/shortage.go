package remedies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

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
	for _, p := range st.Pools { // in order of name, so the first scarce pool leads its group
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

// holders describes which nodes hold the blocks of the given pools.
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
