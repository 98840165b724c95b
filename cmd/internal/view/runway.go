package view

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/runway"
)

// runwayLines describes when a pool's blocks and addresses run out; none without a runway.
func runwayLines(p *runway.Pool) []string {
	if p == nil {
		return nil
	}
	return []string{p.Blocks.Sentence("blocks"), p.Addresses.Sentence("addresses")}
}

// runwayBasis describes the source of a report's runways; "" without any.
func runwayBasis(r *audit.Report) string {
	for i := range r.Pools {
		if w := r.Pools[i].Runway; w != nil {
			return "From " + w.Blocks.Basis.Source + ", counted from " + w.Blocks.Basis.To
		}
	}
	return ""
}

// runway writes the runway of each pool.
func (p *printer) runway(r *audit.Report) {
	basis := runwayBasis(r)
	if basis == "" {
		return
	}
	p.blank()
	p.say("RUNWAY")
	for i := range r.Pools {
		for _, line := range runwayLines(r.Pools[i].Runway) {
			p.wrap("  "+r.Pools[i].Name+": ", 4, line)
		}
	}
	p.wrap("  ", 4, basis)
}
