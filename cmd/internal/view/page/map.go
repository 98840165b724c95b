package page

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

// poolMap is a pool's map in the page.
type poolMap struct {
	ID         int
	Name, CIDR string
	About      string
	Drawing    Drawing
	Legends    []Legend
	Borrowing  string // nodes that borrow here and own no block
	Empty      bool
}

func newPoolMaps(m *blockmap.Map, planned bool, usage audit.Usage) []poolMap {
	out := make([]poolMap, 0, len(m.Pools))
	for i := range m.Pools {
		pool := &m.Pools[i]
		d := Draw(pool, planned, usage)
		out = append(out, poolMap{
			ID: i, Name: MapName(pool), CIDR: pool.CIDR, About: AboutMap(pool), Drawing: d, Legends: d.Legends(),
			Borrowing: view.CutNames(pool.Borrowers, view.MapNames, "and %d more"), Empty: pool.Sparse && len(pool.Cells) == 0,
		})
	}
	return out
}

// MapName returns the heading of a map.
func MapName(m *blockmap.Pool) string {
	if m.Pool < 0 {
		return "Blocks outside all pools"
	}
	return m.Name
}

// AboutMap describes the contents of a map.
func AboutMap(m *blockmap.Pool) string {
	claimed := 0
	for i := range m.Cells {
		claimed += len(m.Cells[i].Blocks)
	}
	text := phrase.Plural(claimed, "block")
	switch {
	case m.Pool < 0:
	case m.Sparse:
		text += "; free slots are not drawn"
	default:
		text += " in " + phrase.Plural(m.Places, "slot")
	}
	if n := blockmap.AddressBits(m.CIDR) - m.BlockSize; m.Pool >= 0 && n >= 0 && n < 32 {
		text += fmt.Sprintf("; a slot is a /%d, %s", m.BlockSize, phrase.Plural(1<<n, "address"))
	}
	if m.Hidden {
		text += "; reserved slots are not drawn"
	}
	return text
}

// mapData is a pool's map for the page's script: one list for each field, with an entry for
// each cell.
type mapData struct {
	Pool      int              `json:"pool"`
	Name      string           `json:"name"`
	CIDR      string           `json:"cidr"`
	BlockSize int              `json:"blockSize"`
	Places    int              `json:"places"`
	Sparse    bool             `json:"sparse"`
	Columns   int              `json:"columns"`
	Cell      int              `json:"cell"`
	Gap       int              `json:"gap"`
	Place     []int            `json:"place"`
	CellCIDR  []string         `json:"cidrs"`
	Left      []string         `json:"left,omitempty"` // omitted slots before the cell
	State     []blockmap.State `json:"state"`
	Owner     []int            `json:"owner"`
	Severity  []int            `json:"severity"`
	// Flags are bits: dead node, no owner, orphan affinity, planned, contested, pinned.
	Flags    []int   `json:"flags"`
	Blocks   [][]int `json:"blocks"`
	Findings [][]int `json:"findings"`
	// InUse and Available are set in maps after a plan, where blocks differ from the
	// report.
	InUse     []int `json:"inUse,omitempty"`
	Available []int `json:"available,omitempty"`
}

func newMapData(name string, h *Drawing) mapData {
	m := h.pool
	d := mapData{
		Pool: m.Pool, Name: name, CIDR: m.CIDR, BlockSize: m.BlockSize, Places: m.Places, Sparse: m.Sparse,
		Columns: h.Columns, Cell: h.Cell, Gap: h.GapWidth(),
		// The script iterates over them, so they must not be null.
		Place: []int{}, CellCIDR: []string{}, State: []blockmap.State{}, Owner: []int{}, Severity: []int{}, Flags: []int{}, Blocks: [][]int{}, Findings: [][]int{},
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		flags := 0
		for bit, is := range []bool{c.DeadNode, c.NoOwner, c.OrphanAffinity, c.Planned, c.Contested, c.Pinned} {
			if is {
				flags |= 1 << bit
			}
		}
		d.Place, d.CellCIDR, d.State = append(d.Place, c.Place), append(d.CellCIDR, c.CIDR.String()), append(d.State, c.State)
		d.Owner, d.Severity, d.Flags = append(d.Owner, c.Owner), append(d.Severity, int(c.Severity)), append(d.Flags, flags)
		d.Blocks, d.Findings = append(d.Blocks, append([]int{}, c.Blocks...)), append(d.Findings, append([]int{}, c.Findings...))
		if m.Sparse {
			left := ""
			if !c.Gap.IsZero() {
				left = view.Short(c.Gap)
			}
			d.Left = append(d.Left, left)
		}
	}
	return d
}
