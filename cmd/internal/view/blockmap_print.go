package view

import (
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// mapPrinter writes the block map alone, as a whole.
type mapPrinter struct{ table }

func newMap(_ string, o Options) (Printer, error) {
	return &mapPrinter{table{Options: o.defaults()}}, nil
}

// Print writes the map.
func (m *mapPrinter) Print(w io.Writer, r *audit.Report) error {
	p := newPage(m.Options)
	m.head(p, r)
	switch {
	case !drawable(r):
		p.blank()
		p.wrap("", 0, "There is no map: the blocks could not be read.")
	case len(r.Pools) == 0 && len(r.Blocks) == 0:
		p.blank()
		p.wrap("", 0, "There is nothing to draw: no IP pool and no block was seen.")
	default:
		m.drawMap(p, r, mapWhole)
	}
	m.notSeen(p, r)
	return p.writeTo(w)
}

// drawable tells whether a report has the blocks that a map takes: they were read,
// and it is no report of an older version, which had none.
func drawable(r *audit.Report) bool {
	for _, g := range r.Gaps {
		if g.Whole() && (g.Resource == blocks.Blocks || g.Resource == blocks.Pools) {
			return false
		}
	}
	return len(r.Blocks) > 0 || r.Summary.Blocks == 0
}
