// Package blockmap makes the picture of blocks and pools that outputs draw, each in its
// own way: where which block lies, how full it is, whose it is and what is wrong with it.
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

// Map is the picture of a report's blocks, which every output draws in its own
// way: per pool the blocks in address order, with how full each is, whose it is and
// what is out of order. Pools are in the report's order; the blocks outside all pools
// come last, as a Pool of their own.
type Map struct{ Pools []Pool }

// Pool is the picture of one pool.
type Pool struct {
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
	Cells []Cell
	// Owners are those who own blocks here, those with the most blocks first, then
	// by name.
	Owners []Owner
	// Borrowers are the nodes that use addresses of others' blocks here and own no
	// block here, in order.
	Borrowers []string
	// Hidden is true if slots are reserved that a sparse picture does not show.
	Hidden bool
}

// State is what a place of the map is.
type State string

// The states of a place.
const (
	// Free: no block, free to be claimed.
	Free State = "free"
	// Reserved: no block, and an IPReservation keeps all of it back.
	Reserved State = "reserved"
	// Empty: claimed, and no address in use.
	Empty State = "empty"
	// Used: claimed, and addresses in use.
	Used State = "used"
	// Broken: a block that is corrupt, overlaps another or is marked deleted, or one that
	// could not be understood, which is none of Blocks.
	Broken State = "broken"
)

// states are the states by which of several shows, rising.
var states = []State{Free, Reserved, Empty, Used, Broken}

// Cell is one place of the map.
type Cell struct {
	// Place is where it is drawn, from 0.
	Place int
	// CIDR is what it covers: a slot of the pool, in sparse pictures also a block
	// that is larger.
	CIDR netip.Prefix
	// Gap is, in sparse pictures, how many slots were left out before it.
	Gap   blocks.Count
	State State
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
	// DeadNode is true if an owner no longer exists, NoOwner if a block has no owner.
	DeadNode, NoOwner bool
	// OrphanAffinity is true if an affinity claims it and no block exists.
	OrphanAffinity bool
	// Contested is true if blocks overlap here, or another node's affinity claims one.
	// Pinned is true if an address cannot move to another block: a tunnel's, a virtual
	// machine's, a service's, or one that Windows keeps.
	Contested, Pinned bool
	// Planned is true if the plan changes something here.
	Planned bool
	// Severity is that of the worst finding about it, 0 for none; Findings are the
	// places in the report of those findings.
	Severity state.Severity
	Findings []int
}

// Owner is who owns blocks of a pool.
type Owner struct {
	// Owner is written as in the report: "host:NODE" for nodes.
	Owner string
	// Blocks counts the blocks, Empty those of them without an address in use.
	Blocks, Empty int
	// DeadNode is true if the owner no longer exists.
	DeadNode bool
	// Color is the owner's, the same in all maps of a report where there are few; from
	// [Colours] on it has none of its own.
	Color int
}

// Colours is how many owners have a colour of their own.
const Colours = 8

// Name names the owner.
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

// Text names the owner with what it has.
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

// New makes the picture of a report. plan marks what it would change; nil
// marks nothing.
func New(r *audit.Report, plan *repair.Plan) *Map {
	ix := newIndex(r, plan)
	m := &Map{}
	for i := range r.Pools {
		pool := &r.Pools[i]
		cidr, err := netip.ParsePrefix(pool.CIDR)
		if err != nil {
			continue // a damaged report; the pool's numbers are shown all the same
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

// color gives the owners their colours: those with the most blocks first, pool by pool.
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
	for i := range m.Pools { // too many for one colour each everywhere
		for j := range m.Pools[i].Owners {
			m.Pools[i].Owners[j].Color = j
		}
	}
}

// AddressBits is the length of the addresses in a CIDR.
func AddressBits(cidr string) int {
	if strings.Contains(cidr, ":") {
		return 128
	}
	return 32
}

// Missing says why a report has no map; empty if it has one.
func Missing(r *audit.Report) string {
	switch {
	case !Drawable(r):
		return "There is no map: the blocks could not be read."
	case len(r.Pools) == 0 && len(r.Blocks) == 0:
		return "There is nothing to draw: no IP pool and no block was seen."
	}
	return ""
}

// Drawable reports whether a report has the blocks that a map takes: they were read,
// and it is no report of an older version, which had none.
func Drawable(r *audit.Report) bool {
	unread := func(g blocks.Gap) bool {
		return g.Whole() && (g.Resource == blocks.Blocks || g.Resource == blocks.Pools)
	}
	return !slices.ContainsFunc(r.Gaps, unread) && (len(r.Blocks) > 0 || r.Summary.Blocks == 0)
}
