package blockmap

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// denseSlots is the maximum number of slots of a dense map.
const denseSlots = 1 << 16

// index holds the data for building cells.
type index struct {
	report *audit.Report
	blockFinder
	// about holds the findings about each block. orphans holds findings about the CIDR of a
	// block that does not exist, such as that of an orphan affinity.
	about   [][]int
	orphans map[netip.Prefix][]int
	planned map[int]bool
	// unread are the CIDRs of undecodable blocks.
	unread []netip.Prefix
}

func newIndex(r *audit.Report, plan *repair.Plan) *index {
	ix := &index{
		report: r, blockFinder: newBlockFinder(r.Blocks), about: make([][]int, len(r.Blocks)), orphans: map[netip.Prefix][]int{}, planned: map[int]bool{},
	}
	named := map[string]netip.Prefix{} // findings about undecodable blocks name the object, not the CIDR
	for _, g := range r.Gaps {
		if g.Resource != blocks.Blocks || g.Whole() {
			continue
		}
		cidr := g.Prefix
		if !cidr.IsValid() { // the JSON of reports omits it
			cidr = blocks.PrefixOfName(g.Name)
		}
		if cidr.IsValid() {
			named[g.Name] = cidr.Masked()
			ix.unread = append(ix.unread, named[g.Name])
		}
	}
	for i := range r.Findings {
		s := r.Findings[i].Subject
		in, cidr := ix.find(s)
		if s.Kind == state.KindBlock && s.CIDR == "" {
			cidr = named[s.Name]
		}
		for _, b := range in {
			ix.about[b] = append(ix.about[b], i)
		}
		if len(in) == 0 && cidr.IsValid() {
			ix.orphans[cidr] = append(ix.orphans[cidr], i)
		}
	}
	for i := 0; plan != nil && i < len(plan.Steps); i++ {
		in, _ := ix.find(plan.Steps[i].Target)
		for _, b := range in {
			ix.planned[b] = true
		}
	}
	return ix
}

// members returns the blocks with a property, without blocks of damaged reports that have
// no CIDR.
func (ix *index) members(is func(i int) bool) (out []int) {
	for i, p := range ix.prefixes {
		if p.IsValid() && is(i) {
			out = append(out, i)
		}
	}
	return out
}

// pool fills in the map of a pool; with the zero Prefix, of the blocks outside all pools.
func (ix *index) pool(m Pool, cidr netip.Prefix, members []int) Pool {
	slots, few := 0, false
	if cidr.IsValid() {
		slots, few = blocks.PowerOfTwo(m.BlockSize - cidr.Bits()).Int()
	}
	covered := 0
	for _, i := range members {
		covered += 1 << min(max(m.BlockSize-max(ix.prefixes[i].Bits(), cidr.Bits()), 0), 20)
	}
	owners := m.addOwners(ix.report, members)
	// Pools hardly ever have many blocks larger than their own. The second bound keeps such
	// blocks from making the map huge.
	if m.Sparse = !few || slots == 0 || slots > denseSlots || covered > 4*denseSlots; m.Sparse {
		ix.sparse(&m, cidr, members)
		m.Hidden = m.Pool >= 0 && len(ix.report.Pools[m.Pool].Reservations) > 0
	} else {
		m.Places = slots
		ix.dense(&m, cidr, members)
	}
	for i := range m.Cells {
		ix.finish(&m.Cells[i], owners)
	}
	return m
}

func (ix *index) dense(m *Pool, cidr netip.Prefix, members []int) {
	cells := map[int]*Cell{}
	at := func(place int) *Cell {
		c := cells[place]
		if c == nil {
			c = &Cell{Place: place, State: Free, CIDR: SlotAt(cidr, m.BlockSize, place)}
			cells[place] = c
		}
		return c
	}
	for _, i := range members {
		from, n := slotsOf(cidr, m.BlockSize, ix.prefixes[i])
		for place := from; place < from+n; place++ {
			c := at(place)
			c.Blocks = append(c.Blocks, i)
		}
	}
	for p := range ix.orphans {
		if p.Bits() >= m.BlockSize && blocks.PrefixContains(cidr, p) {
			from, _ := slotsOf(cidr, m.BlockSize, p)
			at(from)
		}
	}
	if reservations := ix.report.Pools[m.Pool].Reservations; len(reservations) > 0 {
		reserved := reservedIn(reservations)
		for place := range m.Places {
			if reserved.Covers(SlotAt(cidr, m.BlockSize, place)) {
				if c := at(place); len(c.Blocks) == 0 {
					c.State = Reserved
				}
			}
		}
	}
	for _, p := range ix.unread {
		if p.Overlaps(cidr) {
			from, n := slotsOf(cidr, m.BlockSize, p)
			for place := from; place < from+n; place++ {
				at(place).State = Broken
			}
		}
	}
	for _, c := range cells {
		m.Cells = append(m.Cells, *c)
	}
	slices.SortFunc(m.Cells, func(a, b Cell) int { return cmp.Compare(a.Place, b.Place) })
}

// sparse assigns places only to occupied CIDRs, in address order. A nested block follows
// the one around it.
func (ix *index) sparse(m *Pool, cidr netip.Prefix, members []int) {
	var occupied []Cell
	for _, i := range members {
		occupied = append(occupied, Cell{CIDR: ix.prefixes[i], Blocks: []int{i}})
	}
	for _, p := range ix.unread {
		if p.Overlaps(cidr) {
			occupied = append(occupied, Cell{CIDR: p, State: Broken})
		}
	}
	slices.SortStableFunc(occupied, func(a, b Cell) int { return a.CIDR.Compare(b.CIDR) })
	for _, c := range occupied {
		p := c.CIDR
		switch {
		case !cidr.IsValid():
		case p.Bits() < cidr.Bits():
			p = cidr
		case p.Bits() > m.BlockSize && m.BlockSize >= cidr.Bits():
			p = netip.PrefixFrom(p.Addr(), m.BlockSize).Masked()
		}
		n := len(m.Cells)
		if n > 0 && m.Cells[n-1].CIDR.Overlaps(p) {
			last := &m.Cells[n-1]
			last.Blocks, last.State = append(last.Blocks, c.Blocks...), cmp.Or(c.State, last.State)
			continue
		}
		c.Place, c.CIDR = n, p
		if cidr.IsValid() {
			after := cidr.Addr()
			if n > 0 {
				after = netipx.PrefixLastIP(m.Cells[n-1].CIDR).Next()
			}
			c.Gap = blocks.SlotsBetween(after, p.Addr(), max(m.BlockSize, cidr.Bits()))
		}
		m.Cells = append(m.Cells, c)
	}
	m.Places = len(m.Cells)
}

// finish computes a cell from its blocks. owners holds the index of each owner.
func (ix *index) finish(c *Cell, owners map[string]int) {
	parts := make([]Cell, len(c.Blocks))
	for n, i := range c.Blocks {
		b := &ix.report.Blocks[i]
		size, _ := blocks.Addresses(ix.prefixes[i]).Int()
		owner, owned := owners[b.Owner]
		if !owned {
			owner = -1
		}
		parts[n] = Cell{
			State: Empty, Owner: owner, InUse: b.InUse, Available: b.Available, Lent: b.Lent, Size: size,
			DeadNode: b.Is(audit.BlockDeadNode), NoOwner: b.Is(audit.BlockNoOwner), Planned: ix.planned[i], Findings: ix.about[i],
		}
		for _, u := range ix.report.Usage.Block(i) {
			parts[n].Pinned = parts[n].Pinned || u.Pinned()
		}
		switch {
		case b.Broken():
			parts[n].State = Broken
		case b.InUse > 0:
			parts[n].State = Used
		}
	}
	orphans := ix.orphans[c.CIDR]
	// Before the merge, Broken means an undecodable block, so an affinity to it is not an
	// orphan.
	c.Findings, c.OrphanAffinity = append(c.Findings, orphans...), len(orphans) > 0 && c.State != Broken
	c.Merge(parts)
	slices.Sort(c.Findings)
	c.Findings = slices.Compact(c.Findings)
	for _, i := range c.Findings {
		f := &ix.report.Findings[i]
		c.Severity = max(c.Severity, f.Severity)
		c.Contested = c.Contested || len(c.Blocks) > 0 && (f.Check == "affinity/not-owner" || f.Check == "block/overlap")
	}
}

// Merge adds up parts of a cell. The cell gets the state with the highest precedence, the
// common owner of its occupied parts, and their mean fill level. Merge returns the number
// of occupied parts.
func (c *Cell) Merge(parts []Cell) (taken int) {
	c.Owner = -1
	for i := range parts {
		d := &parts[i]
		if d.State != Free {
			if taken++; taken == 1 {
				c.Owner = d.Owner
			} else if c.Owner != d.Owner {
				c.Owner = -1
			}
		}
		if slices.Index(states, d.State) > slices.Index(states, c.State) {
			c.State = d.State
		}
		c.InUse, c.Available, c.Lent, c.Size = c.InUse+d.InUse, c.Available+d.Available, c.Lent+d.Lent, c.Size+d.Size
		c.DeadNode, c.NoOwner = c.DeadNode || d.DeadNode, c.NoOwner || d.NoOwner
		c.OrphanAffinity, c.Planned = c.OrphanAffinity || d.OrphanAffinity, c.Planned || d.Planned
		c.Contested, c.Pinned = c.Contested || d.Contested, c.Pinned || d.Pinned
		c.Severity, c.Findings = max(c.Severity, d.Severity), append(c.Findings, d.Findings...)
	}
	c.Fill = eighths(c.InUse, c.Available, c.Size)
	return taken
}

// eighths returns a fill level in eighths: 0 is empty, and 8 means that no address can be
// assigned.
func eighths(inUse, available, size int) int {
	switch {
	case inUse <= 0 || size <= 0:
		return 0
	case available <= 0:
		return 8
	}
	return min(max((inUse*8+size-1)/size, 1), 7)
}

// addOwners counts the owners and borrowers of blocks. It returns the index of each owner.
func (m *Pool) addOwners(r *audit.Report, members []int) map[string]int {
	at := map[string]int{}
	nodes := map[string]bool{}
	for _, i := range members {
		b := &r.Blocks[i]
		m.Borrowers = append(m.Borrowers, b.LentTo...)
		if b.Owner == "" {
			continue
		}
		j, ok := at[b.Owner]
		if !ok {
			j = len(m.Owners)
			at[b.Owner], m.Owners = j, append(m.Owners, Owner{Owner: b.Owner})
		}
		o := &m.Owners[j]
		o.Blocks, o.DeadNode = o.Blocks+1, o.DeadNode || b.Is(audit.BlockDeadNode)
		if b.InUse == 0 {
			o.Empty++
		}
		nodes[b.OwnerNode()] = true
	}
	slices.SortFunc(m.Owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.Owner, b.Owner))
	})
	slices.Sort(m.Borrowers)
	m.Borrowers = slices.DeleteFunc(slices.Compact(m.Borrowers), func(n string) bool { return nodes[n] })
	for i := range m.Owners {
		at[m.Owners[i].Owner] = i
	}
	return at
}

type blockFinder struct {
	prefixes []netip.Prefix // of the blocks
	byCIDR   map[netip.Prefix][]int
	// lengths are the distinct prefix lengths of blocks, the longest first.
	lengths []int
}

func newBlockFinder(all []audit.BlockReport) blockFinder {
	f := blockFinder{prefixes: make([]netip.Prefix, len(all)), byCIDR: make(map[netip.Prefix][]int, len(all))}
	for i := range all {
		p := all[i].Prefix()
		f.prefixes[i] = p
		if p.IsValid() {
			f.byCIDR[p] = append(f.byCIDR[p], i)
			f.lengths = append(f.lengths, p.Bits())
		}
	}
	slices.SortFunc(f.lengths, func(a, b int) int { return b - a })
	f.lengths = slices.Compact(f.lengths)
	return f
}

// find returns the blocks of a subject: the block or affinity that it names, or the blocks
// that contain its address. cidr is the named CIDR.
func (f *blockFinder) find(s state.Subject) (out []int, cidr netip.Prefix) {
	switch s.Kind {
	case state.KindIP:
		a, _ := netip.ParseAddr(s.IP)
		for _, n := range f.lengths {
			if p, err := a.Prefix(n); err == nil {
				out = append(out, f.byCIDR[p]...)
			}
		}
	case state.KindBlock, state.KindAffinity:
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			return f.byCIDR[p.Masked()], p.Masked()
		}
	}
	return out, netip.Prefix{}
}

func reservedIn(cidrs []string) blocks.ReservedSet {
	var all blocks.Reservation
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(c); err == nil {
			all.CIDRs = append(all.CIDRs, p.Masked())
		}
	}
	return blocks.NewReservedSet([]blocks.Reservation{all})
}

// SlotAt returns a slot of a pool by number.
func SlotAt(pool netip.Prefix, bits, number int) netip.Prefix {
	raw := pool.Addr().AsSlice()
	shift := len(raw)*8 - bits
	for i, carry := len(raw)-1-shift/8, uint64(number)<<(shift%8); i >= 0 && carry > 0; i-- {
		carry += uint64(raw[i])
		raw[i] = byte(carry)
		carry >>= 8
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, bits)
}

// slotsOf returns the first of the slots that a CIDR covers or lies in, and their number.
// The pool must have few slots.
func slotsOf(pool netip.Prefix, bits int, p netip.Prefix) (from, n int) {
	if p.Bits() <= pool.Bits() {
		return 0, 1 << (bits - pool.Bits())
	}
	first, _ := blocks.SlotsBetween(pool.Addr(), p.Masked().Addr(), bits).Int()
	return first, 1 << max(bits-p.Bits(), 0)
}
