package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// htmlMap is a pool's picture in the page.
type htmlMap struct {
	ID         int
	Name, CIDR string
	About      string
	Drawing    mapDrawing
	Legends    []htmlLegend
	Borrowing  string // who borrows here and owns no block
	Empty      bool

	pool *PoolMap
}

// htmlLegend explains a mode; the marks, which every mode has, are of the mode "".
type htmlLegend struct {
	Mode  string
	Items []swatch
}

func htmlMaps(m *BlockMap, planned bool, usage *audit.Usage) []htmlMap {
	out := make([]htmlMap, 0, len(m.Pools))
	for i := range m.Pools {
		pool := &m.Pools[i]
		h := htmlMap{
			ID: i, Name: pool.Name, CIDR: pool.CIDR, About: aboutMap(pool), Drawing: drawingOf(pool, planned, usage),
			Empty: pool.Sparse && len(pool.Cells) == 0, pool: pool,
		}
		if pool.Pool < 0 {
			h.Name = "Blocks outside all pools"
		}
		fill, owners, findings, plan, marks := h.Drawing.legends(pool)
		for _, l := range []htmlLegend{{"fill", fill}, {"owner", owners}, {"findings", findings}, {"plan", plan}, {"", marks}} {
			if len(l.Items) > 0 {
				h.Legends = append(h.Legends, l)
			}
		}
		if n := len(pool.Borrowers); n > 0 {
			names := pool.Borrowers
			if n > mapNames {
				names = append(append([]string{}, names[:mapNames]...), fmt.Sprintf("and %d more", n-mapNames))
			}
			h.Borrowing = strings.Join(names, ", ")
		}
		out = append(out, h)
	}
	return out
}

// aboutMap says what a picture shows.
func aboutMap(m *PoolMap) string {
	claimed := 0
	for i := range m.Cells {
		claimed += len(m.Cells[i].Blocks)
	}
	text := plural(claimed, "block", "blocks")
	switch {
	case m.Pool < 0:
	case m.Sparse:
		text += ": only what is occupied is drawn"
	default:
		text += fmt.Sprintf(" in %s", plural(m.Places, "slot", "slots"))
	}
	if n := addressBits(m.CIDR) - m.BlockSize; m.Pool >= 0 && n >= 0 && n < 32 {
		text += fmt.Sprintf("; a slot is a /%d, %s", m.BlockSize, plural(1<<n, "address", "addresses"))
	}
	if m.Hidden {
		text += "; reserved slots are not drawn"
	}
	return text
}

// mapData is a pool's picture as the page's script reads it: a list per field, with
// an entry per cell.
type mapData struct {
	Pool      int        `json:"pool"`
	Name      string     `json:"name"`
	CIDR      string     `json:"cidr"`
	BlockSize int        `json:"blockSize"`
	Places    int        `json:"places"`
	Sparse    bool       `json:"sparse"`
	Columns   int        `json:"columns"`
	Cell      int        `json:"cell"`
	Gap       int        `json:"gap"`
	Owners    []string   `json:"owners"`
	Place     []int      `json:"place"`
	CellCIDR  []string   `json:"cidrs"`
	Left      []string   `json:"left,omitempty"` // slots left out before the cell
	State     []MapState `json:"state"`
	Owner     []int      `json:"owner"`
	Severity  []int      `json:"severity"`
	Flags     []int      `json:"flags"`
	Blocks    [][]int    `json:"blocks"`
	Findings  [][]int    `json:"findings"`
}

// The flags of a cell.
const (
	cellDeadNode = 1 << iota
	cellNoOwner
	cellStray
	cellPlanned
)

func newMapData(h *htmlMap) mapData {
	m := h.pool
	d := mapData{
		Pool: m.Pool, Name: h.Name, CIDR: m.CIDR, BlockSize: m.BlockSize, Places: m.Places, Sparse: m.Sparse,
		Columns: h.Drawing.Columns, Cell: h.Drawing.Cell, Gap: h.Drawing.GapWidth(),
	}
	for i := range m.Owners {
		d.Owners = append(d.Owners, m.Owners[i].Owner)
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		flags := 0
		for _, f := range []struct {
			is  bool
			bit int
		}{{c.DeadNode, cellDeadNode}, {c.NoOwner, cellNoOwner}, {c.Stray, cellStray}, {c.Planned, cellPlanned}} {
			if f.is {
				flags |= f.bit
			}
		}
		d.Place, d.CellCIDR, d.State = append(d.Place, c.Place), append(d.CellCIDR, c.CIDR.String()), append(d.State, c.State)
		d.Owner, d.Severity, d.Flags = append(d.Owner, c.Owner), append(d.Severity, int(c.Severity)), append(d.Flags, flags)
		d.Blocks, d.Findings = append(d.Blocks, some(c.Blocks)), append(d.Findings, some(c.Findings))
		if m.Sparse {
			left := ""
			if !c.Gap.IsZero() {
				left = short(c.Gap)
			}
			d.Left = append(d.Left, left)
		}
	}
	return d
}

// some returns the list, and an empty one for nil.
func some(list []int) []int {
	if list == nil {
		return []int{}
	}
	return list
}
