package view

import (
	"net/netip"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// BlockMap is the picture of a report's blocks, which every output draws in its own
// way: per pool the blocks in address order, with how full each is, whose it is and
// what is out of order.
type BlockMap struct {
	// Pools are in the report's order. Blocks outside all pools come last, as a
	// PoolMap of their own.
	Pools []PoolMap
}

// PoolMap is the picture of one pool.
type PoolMap struct {
	// Pool is the pool's place in the report, -1 for the blocks outside all pools.
	Pool int
	// Name and CIDR are the pool's; BlockSize is the prefix length of a place.
	Name, CIDR string
	BlockSize  int
	// Places is how many places the picture has. In a pool of up to 65,536 slots
	// each slot is a place, and a place without a cell is free to be claimed. In a
	// larger one, as of IPv6, only what is occupied has a place: the picture is
	// Sparse, and cells say how much was left out before them.
	Places int
	Sparse bool
	// Cells are the places that are not simply free, in order.
	Cells []MapCell
	// Owners are those who own blocks here, those with the most blocks first, then
	// by name.
	Owners []MapOwner
	// Borrowers are the nodes that use addresses of others' blocks here and own no
	// block here, in order.
	Borrowers []string
	// Hidden is true if slots are reserved that a sparse picture does not show.
	Hidden bool
}

// MapState is what a place of the map is.
type MapState string

// The states of a place.
const (
	// MapFree: no block, free to be claimed.
	MapFree MapState = "free"
	// MapEmpty: claimed, and no address in use.
	MapEmpty MapState = "empty"
	// MapUsed: claimed, and addresses in use.
	MapUsed MapState = "used"
	// MapReserved: no block, and an IPReservation keeps all of it back.
	MapReserved MapState = "reserved"
	// MapBroken: a block that is corrupt, overlaps another or is marked deleted.
	MapBroken MapState = "broken"
)

// MapCell is one place of the map.
type MapCell struct {
	// Place is where it is drawn, from 0.
	Place int
	// CIDR is what it covers: a slot of the pool, in sparse pictures also a block
	// that is larger.
	CIDR netip.Prefix
	// Gap is, in sparse pictures, how many slots were left out before it.
	Gap   blocks.Count
	State MapState
	// Fill is how full its blocks are, in eighths begun: 0 is empty, and 8 means that
	// nothing can be assigned any more.
	Fill int
	// Blocks are the places in the report of the blocks in it: one, unless blocks of
	// other sizes lie here.
	Blocks []int
	// Owner is the owner's place in Owners; -1 for none or several.
	Owner int
	// InUse, Available and Lent count addresses of its blocks, and Size those that
	// the blocks span.
	InUse, Available, Lent, Size int
	// DeadNode is true if an owner is no node, NoOwner if a block has no owner.
	DeadNode, NoOwner bool
	// Stray is true if an affinity claims it and no block exists.
	Stray bool
	// Planned is true if the plan changes something here.
	Planned bool
	// Severity is that of the worst finding about it, 0 for none; Findings are the
	// places in the report of those findings.
	Severity audit.Severity
	Findings []int
}

// MapOwner is who owns blocks of a pool.
type MapOwner struct {
	// Owner is written as in the report: "host:NODE" for nodes.
	Owner string
	// Blocks counts the blocks, Empty those of them without an address in use.
	Blocks, Empty int
	// InUse counts the addresses in use in them, Lent those that other nodes use.
	InUse, Lent int
	// DeadNode is true if the owner is no node.
	DeadNode bool
}

// mapDense is how many slots a pool may have for all to be drawn.
const mapDense = 1 << 16

// NewBlockMap makes the picture of a report. plan marks what it would change; nil
// marks nothing.
func NewBlockMap(r *audit.Report, plan *repair.Plan) *BlockMap {
	ix := newMapIndex(r, plan)
	m := &BlockMap{}
	outside := make([]int, 0)
	for i := range r.Blocks {
		if r.Blocks[i].Pool == "" && ix.prefixes[i].IsValid() {
			outside = append(outside, i)
		}
	}
	for i := range r.Pools {
		pool := &r.Pools[i]
		cidr, err := netip.ParsePrefix(pool.CIDR)
		if err != nil {
			continue // a damaged report; the pool's numbers are shown all the same
		}
		m.Pools = append(m.Pools, ix.pool(PoolMap{Pool: i, Name: pool.Name, CIDR: pool.CIDR, BlockSize: pool.BlockSize}, cidr.Masked(), ix.within(cidr)))
	}
	if len(outside) > 0 {
		m.Pools = append(m.Pools, ix.pool(PoolMap{Pool: -1}, netip.Prefix{}, outside))
	}
	return m
}
