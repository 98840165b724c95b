package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/blocks"
)

// AddRunway estimates for each enabled pool when its blocks and addresses run out, from the
// history and the report's own numbers.
func (r *Report) AddRunway(h *runway.History) {
	for i := range r.Pools {
		if p := &r.Pools[i]; !p.Disabled && r.counted() {
			b, a := r.samples(p)
			p.Runway = h.New(p.Name, b, a)
		}
	}
}

// Remember adds the report's numbers of each pool to a history.
func (r *Report) Remember(h *runway.History) {
	for i := range r.Pools {
		if p := &r.Pools[i]; r.counted() {
			past := h.Pools[p.Name]
			b, a := r.samples(p)
			h.Pools[p.Name] = runway.Past{Blocks: append(past.Blocks, b), Addresses: append(past.Addresses, a)}
		}
	}
}

// counted reports whether all resources that decide the counts of blocks and addresses were read.
func (r *Report) counted() bool {
	return !slices.ContainsFunc(r.Gaps, func(g blocks.Gap) bool {
		return g.Resource == blocks.Pools || g.Resource == blocks.Blocks || g.Resource == blocks.Reservations
	})
}

// samples returns a pool's free blocks and addresses, as the exporter's metrics count them.
func (r *Report) samples(p *PoolReport) (b, a runway.Sample) {
	at := r.Cluster.TakenAt.Time
	return runway.Sample{At: at, Left: p.Blocks.Allocatable.Float(), Usable: p.Blocks.Claimed.Float() + p.Blocks.Free.Float()},
		runway.Sample{At: at, Left: p.Addresses.Available.Float(), Usable: p.Addresses.Capacity.Float() - p.Addresses.Reserved.Float()}
}
