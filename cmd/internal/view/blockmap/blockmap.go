// Package blockmap builds the block map as data, for every output that draws it: the
// position of each block, its fill level, its owner and its problems.
package blockmap

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Map is the map of a report's blocks: for each pool the blocks in address order. Pools are
// in the report's order. Blocks outside all pools come last, as a Pool of their own.
type Map struct{ Pools []Pool }

// Pool is the map of one pool.
type Pool struct {
	// Pool is the index of the pool in the report; -1 for the blocks outside all pools.
	Pool int
	// Name and CIDR are those of the pool. BlockSize is the prefix length of a place.
	Name, CIDR string
	BlockSize  int
	// Places is the number of places. In a pool of up to 65,536 slots each slot is a place,
	// and a place without a cell is claimable. In a larger pool, such as an IPv6 pool, only
	// occupied slots are places: Sparse is true, and cells record the gaps before them.
	Places int
	Sparse bool
	// Cells are the places that are not free or have a mark, in order.
	Cells []Cell
	// Owners are the owners of blocks in this pool, by number of blocks and then by name.
	Owners []Owner
	// Borrowers are the nodes that borrow addresses in this pool and own no block in it, in
	// order.
	Borrowers []string
	// Hidden is true if a sparse map omits reserved slots.
	Hidden bool
}

// State is the state of a place.
type State string

const (
	// Free is a slot that can be claimed and has no block.
	Free State = "free"
	// Reserved is a slot without a block that IPReservations cover completely.
	Reserved State = "reserved"
	// Empty is a claimed slot without an address in use.
	Empty State = "empty"
	// Used is a claimed slot with addresses in use.
	Used State = "used"
	// Broken is a block that is corrupt, overlaps another or is marked as deleted, or an
	// undecodable block. The latter is not in Blocks.
	Broken State = "broken"
)

// states lists the states by precedence, the lowest first, for a place with several.
var states = []State{Free, Reserved, Empty, Used, Broken}

// Cell is a place of the map.
type Cell struct {
	// Place is its position, from 0.
	Place int
	// CIDR is the covered slot of the pool; in sparse maps it may be a larger block.
	CIDR netip.Prefix
	// Gap is the number of omitted slots before it, in sparse maps.
	Gap   blocks.Count
	State State
	// Fill is the fill level in eighths, rounded up: 0 is empty, and 8 means that no
	// address can be assigned.
	Fill int
	// Blocks are the indexes of its blocks in the report: one, unless there are blocks of
	// other sizes.
	Blocks []int
	// Owner is the index in Owners; -1 for none or several.
	Owner int
	// InUse, Available and Lent count addresses of its blocks; Size counts all of them.
	InUse, Available, Lent, Size int
	// DeadNode is true if an owner no longer exists, NoOwner if a block has no owner.
	DeadNode, NoOwner bool
	// OrphanAffinity is true if an affinity claims the CIDR, but no block exists.
	OrphanAffinity bool
	// Contested is true if blocks overlap here, or another node's affinity claims a block.
	// Pinned is true if an address cannot move to another block: a tunnel's, a virtual
	// machine's, a service's, or one that Windows reserves.
	Contested, Pinned bool
	// Planned is true if the plan changes the place.
	Planned bool
	// Severity is that of its most severe finding, 0 for none. Findings are the indexes of
	// its findings in the report.
	Severity state.Severity
	Findings []int
}

// Owner is the owner of blocks in a pool.
type Owner struct {
	// Owner is as in the report: "host:NODE" for nodes.
	Owner string
	// Blocks counts the blocks, and Empty those without an address in use.
	Blocks, Empty int
	// DeadNode is true if the owner no longer exists.
	DeadNode bool
	// Color is the index of the owner's colour, equal in all maps of a report with few
	// owners. Indexes from [Colours] on have no colour of their own.
	Color int
}

// Colours is the number of owners' colours.
const Colours = 8

// Name returns the name of the owner for people.
func (o *Owner) Name() string {
	owner := blocks.ParseOwner(o.Owner)
	switch name := owner.Node(); {
	case owner.Kind == blocks.VirtualOwner:
		return "LoadBalancer services"
	case name != "":
		return name
	}
	return o.Owner
}

// Text returns the owner's name with its number of blocks.
func (o *Owner) Text() string {
	text := o.Name() + ": " + phrase.Plural(o.Blocks, "block")
	if o.Empty > 0 {
		text += fmt.Sprintf(", %d empty", o.Empty)
	}
	if o.DeadNode {
		text += ", no longer exists"
	}
	return text
}

// New builds the map of a report. It marks the changes of plan, if that is not nil.
func New(r *audit.Report, plan *repair.Plan) *Map {
	ix := newIndex(r, plan)
	m := &Map{}
	for i := range r.Pools {
		pool := &r.Pools[i]
		cidr, err := netip.ParsePrefix(pool.CIDR)
		if err != nil {
			continue // a damaged report; the pool's numbers are still shown
		}
		within := ix.members(func(i int) bool { return ix.prefixes[i].Overlaps(cidr) })
		m.Pools = append(m.Pools, ix.pool(Pool{Pool: i, Name: pool.Name, CIDR: pool.CIDR, BlockSize: pool.BlockSize}, cidr.Masked(), within))
	}
	if outside := ix.members(func(i int) bool { return r.Blocks[i].Pool == "" }); len(outside) > 0 {
		m.Pools = append(m.Pools, ix.pool(Pool{Pool: -1}, netip.Prefix{}, outside))
	}
	m.color()
	return m
}

// color assigns the owners' colours, by number of blocks, pool by pool.
func (m *Map) color() {
	of := map[string]int{}
	for i := range m.Pools {
		for j := range m.Pools[i].Owners {
			o := &m.Pools[i].Owners[j]
			if _, has := of[o.Owner]; !has {
				of[o.Owner] = len(of)
			}
			o.Color = of[o.Owner]
		}
	}
	if len(of) <= Colours {
		return
	}
	for i := range m.Pools { // too many owners for distinct colours: assign them by pool
		for j := range m.Pools[i].Owners {
			m.Pools[i].Owners[j].Color = j
		}
	}
}

// AddressBits returns the number of bits of an address in a CIDR.
func AddressBits(cidr string) int {
	if strings.Contains(cidr, ":") {
		return 128
	}
	return 32
}

// Missing explains why a report has no map; "" if it has one.
func Missing(r *audit.Report) string {
	switch {
	case !Drawable(r):
		return "No map: the blocks could not be read."
	case len(r.Pools) == 0 && len(r.Blocks) == 0:
		return "No map: no IP pool and no block was read."
	}
	return ""
}

// Drawable reports whether a report contains its blocks: they could be read, and the report
// is not of an older version without blocks.
func Drawable(r *audit.Report) bool {
	unread := func(g blocks.Gap) bool {
		return g.Whole() && (g.Resource == blocks.Blocks || g.Resource == blocks.Pools)
	}
	return !slices.ContainsFunc(r.Gaps, unread) && (len(r.Blocks) > 0 || r.Summary.Blocks == 0)
}
