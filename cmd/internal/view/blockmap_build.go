package view

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// mapIndex is what the cells of a map are made of.
type mapIndex struct {
	report   *audit.Report
	prefixes []netip.Prefix // of the report's blocks
	// about has the findings about each block, stray those about the CIDR of a block
	// that does not exist.
	about   [][]int
	stray   map[netip.Prefix][]int
	planned map[int]bool
}

func newMapIndex(r *audit.Report, plan *repair.Plan) *mapIndex {
	ix := &mapIndex{report: r, prefixes: make([]netip.Prefix, len(r.Blocks))}
	for i := range r.Blocks {
		ix.prefixes[i] = r.Blocks[i].Prefix()
	}
	find := newBlockFinder(ix.prefixes)
	ix.about, ix.stray = findingsByBlock(r, find)
	ix.planned = plannedBlocks(plan, find)
	return ix
}

// within returns the blocks that share addresses with a pool.
func (ix *mapIndex) within(pool netip.Prefix) (out []int) {
	for i, p := range ix.prefixes {
		if p.IsValid() && p.Overlaps(pool) {
			out = append(out, i)
		}
	}
	return out
}

// pool fills in the picture of a pool, or of the blocks outside all pools if the
// CIDR is the zero Prefix.
func (ix *mapIndex) pool(m PoolMap, cidr netip.Prefix, members []int) PoolMap {
	slots, few := 0, false
	if cidr.IsValid() {
		slots, few = blocks.PowerOfTwo(m.BlockSize - cidr.Bits()).Int()
	}
	covered := 0
	for _, i := range members {
		covered += 1 << min(max(m.BlockSize-max(ix.prefixes[i].Bits(), cidr.Bits()), 0), 20)
	}
	owners := m.owners(ix.report, members)
	// Many blocks larger than the pool's own are as good as never; that they cannot
	// make the picture huge is what the second bound is for.
	if m.Sparse = !few || slots == 0 || slots > mapDense || covered > 4*mapDense; m.Sparse {
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

// dense gives each slot its place.
func (ix *mapIndex) dense(m *PoolMap, cidr netip.Prefix, members []int) {
	cells := map[int]*MapCell{}
	at := func(place int) *MapCell {
		c := cells[place]
		if c == nil {
			c = &MapCell{Place: place, State: MapFree, CIDR: slotAt(cidr, m.BlockSize, place)}
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
	for p := range ix.stray {
		if p.Bits() >= m.BlockSize && blocks.PrefixContains(cidr, p) {
			from, _ := slotsOf(cidr, m.BlockSize, p)
			at(from)
		}
	}
	reserved := reservedIn(ix.report.Pools[m.Pool].Reservations)
	for place := 0; place < m.Places && len(ix.report.Pools[m.Pool].Reservations) > 0; place++ {
		if slot := slotAt(cidr, m.BlockSize, place); reserved.Covers(slot) {
			if c := at(place); len(c.Blocks) == 0 {
				c.State = MapReserved
			}
		}
	}
	for _, c := range cells {
		m.Cells = append(m.Cells, *c)
	}
	slices.SortFunc(m.Cells, func(a, b MapCell) int { return cmp.Compare(a.Place, b.Place) })
}

// sparse gives places to what is occupied only. Blocks are in address order, and
// one that lies in another follows it.
func (ix *mapIndex) sparse(m *PoolMap, cidr netip.Prefix, members []int) {
	for _, i := range members {
		p := ix.prefixes[i]
		switch {
		case !cidr.IsValid():
		case p.Bits() < cidr.Bits():
			p = cidr
		case p.Bits() > m.BlockSize && m.BlockSize >= cidr.Bits():
			p = netip.PrefixFrom(p.Addr(), m.BlockSize).Masked()
		}
		if n := len(m.Cells); n > 0 && m.Cells[n-1].CIDR.Overlaps(p) {
			m.Cells[n-1].Blocks = append(m.Cells[n-1].Blocks, i)
			continue
		}
		c := MapCell{Place: len(m.Cells), CIDR: p, Blocks: []int{i}}
		if cidr.IsValid() {
			after := cidr.Addr()
			if n := len(m.Cells); n > 0 {
				after = netipx.PrefixLastIP(m.Cells[n-1].CIDR).Next()
			}
			c.Gap = blocks.SlotsBetween(after, p.Addr(), max(m.BlockSize, cidr.Bits()))
		}
		m.Cells = append(m.Cells, c)
	}
	m.Places = len(m.Cells)
}

// finish fills in what a cell's blocks come to. owners has the place of each owner.
func (ix *mapIndex) finish(c *MapCell, owners map[string]int) {
	c.Owner = -1
	if strays := ix.stray[c.CIDR]; len(strays) > 0 {
		c.Findings, c.Stray = append(c.Findings, strays...), true
	}
	for n, i := range c.Blocks {
		b := &ix.report.Blocks[i]
		size, _ := blocks.Addresses(ix.prefixes[i]).Int()
		c.InUse, c.Available, c.Lent, c.Size = c.InUse+b.InUse, c.Available+b.Available, c.Lent+b.Lent, c.Size+size
		c.DeadNode = c.DeadNode || b.Is(audit.BlockDeadNode)
		c.NoOwner = c.NoOwner || b.Is(audit.BlockNoOwner)
		c.Planned = c.Planned || ix.planned[i]
		c.Findings = append(c.Findings, ix.about[i]...)
		owner, owned := owners[b.Owner]
		if !owned {
			owner = -1
		}
		if n == 0 {
			c.Owner = owner
		} else if c.Owner != owner {
			c.Owner = -1
		}
		if b.Broken() {
			c.State = MapBroken
		}
	}
	switch {
	case len(c.Blocks) == 0 || c.State == MapBroken:
	case c.InUse > 0:
		c.State = MapUsed
	default:
		c.State = MapEmpty
	}
	c.Fill = eighths(c.InUse, c.Available, c.Size)
	slices.Sort(c.Findings)
	c.Findings = slices.Compact(c.Findings)
	for _, i := range c.Findings {
		c.Severity = max(c.Severity, ix.report.Findings[i].Severity)
	}
}

// eighths returns how full something is: 0 is empty, and 8 means that nothing is
// left to be assigned.
func eighths(inUse, available, size int) int {
	switch {
	case inUse <= 0 || size <= 0:
		return 0
	case available <= 0:
		return 8
	}
	return min(max((inUse*8+size-1)/size, 1), 7)
}

// owners counts who owns the blocks, and who borrows. It returns the place of each
// owner.
func (m *PoolMap) owners(r *audit.Report, members []int) map[string]int {
	at := map[string]int{}
	nodes := map[string]bool{}
	var borrowers []string
	for _, i := range members {
		b := &r.Blocks[i]
		borrowers = append(borrowers, b.LentTo...)
		if b.Owner == "" {
			continue
		}
		j, ok := at[b.Owner]
		if !ok {
			j = len(m.Owners)
			at[b.Owner], m.Owners = j, append(m.Owners, MapOwner{Owner: b.Owner})
		}
		o := &m.Owners[j]
		o.Blocks, o.InUse, o.Lent = o.Blocks+1, o.InUse+b.InUse, o.Lent+b.Lent
		o.DeadNode = o.DeadNode || b.Is(audit.BlockDeadNode)
		if b.InUse == 0 {
			o.Empty++
		}
		nodes[b.OwnerNode()] = true
	}
	slices.SortFunc(m.Owners, func(a, b MapOwner) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.Owner, b.Owner))
	})
	slices.Sort(borrowers)
	for _, n := range slices.Compact(borrowers) {
		if !nodes[n] {
			m.Borrowers = append(m.Borrowers, n)
		}
	}
	for i := range m.Owners {
		at[m.Owners[i].Owner] = i
	}
	return at
}
