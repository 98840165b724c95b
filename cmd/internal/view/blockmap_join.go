package view

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// blockFinder finds blocks by what subjects name.
type blockFinder struct {
	byCIDR map[netip.Prefix][]int
	// lengths are the prefix lengths that blocks have, the longest first.
	lengths []int
}

func newBlockFinder(prefixes []netip.Prefix) *blockFinder {
	f := &blockFinder{byCIDR: make(map[netip.Prefix][]int, len(prefixes))}
	for i, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		f.byCIDR[p] = append(f.byCIDR[p], i)
		if !slices.Contains(f.lengths, p.Bits()) {
			f.lengths = append(f.lengths, p.Bits())
		}
	}
	slices.SortFunc(f.lengths, func(a, b int) int { return b - a })
	return f
}

// subject returns the blocks that a subject is about: the block or affinity that
// it names, or the blocks that hold the address. cidr is what it names.
func (f *blockFinder) subject(s audit.Subject) (out []int, cidr netip.Prefix) {
	switch s.Kind {
	case audit.KindIP:
		a, err := netip.ParseAddr(s.IP)
		if err != nil {
			return nil, netip.Prefix{}
		}
		for _, n := range f.lengths {
			if p, err := a.Prefix(n); err == nil {
				out = append(out, f.byCIDR[p]...)
			}
		}
	case audit.KindBlock, audit.KindAffinity:
		p, err := netip.ParsePrefix(s.CIDR)
		if err != nil {
			return nil, netip.Prefix{}
		}
		return f.byCIDR[p.Masked()], p.Masked()
	}
	return out, netip.Prefix{}
}

// findingsByBlock lists the findings about each block, and those about the CIDR of
// a block that does not exist, as an affinity may name one.
func findingsByBlock(r *audit.Report, find *blockFinder) (about [][]int, stray map[netip.Prefix][]int) {
	about, stray = make([][]int, len(r.Blocks)), map[netip.Prefix][]int{}
	for i := range r.Findings {
		in, cidr := find.subject(r.Findings[i].Subject)
		for _, b := range in {
			about[b] = append(about[b], i)
		}
		if len(in) == 0 && cidr.IsValid() {
			stray[cidr] = append(stray[cidr], i)
		}
	}
	return about, stray
}

// plannedBlocks are the blocks that a plan changes something of.
func plannedBlocks(plan *repair.Plan, find *blockFinder) map[int]bool {
	out := map[int]bool{}
	if plan == nil {
		return out
	}
	for i := range plan.Steps {
		in, _ := find.subject(plan.Steps[i].Target)
		for _, b := range in {
			out[b] = true
		}
	}
	return out
}

// AfterPlan returns the report with its blocks as they would be if every step of
// the plan were done and nothing else happened, and without findings: nothing has
// judged that state. The report that was given is not changed.
func AfterPlan(r *audit.Report, plan *repair.Plan) *audit.Report {
	after := *r
	after.Findings, after.Muted, after.Usage = nil, nil, nil
	after.Blocks, after.Pools = slices.Clone(r.Blocks), slices.Clone(r.Pools)
	prefixes := make([]netip.Prefix, len(r.Blocks))
	for i := range r.Blocks {
		prefixes[i] = r.Blocks[i].Prefix()
	}
	find := newBlockFinder(prefixes)
	gone := map[int]bool{}
	for i := range plan.Steps {
		step := &plan.Steps[i]
		in, _ := find.subject(step.Target)
		for _, b := range in {
			switch {
			case step.Kind == repair.ReleaseIP:
				after.Blocks[b].InUse, after.Blocks[b].Available = after.Blocks[b].InUse-1, after.Blocks[b].Available+1
			case step.Kind == repair.ReleaseBlock, step.Kind == repair.FinishDelete && step.Target.Kind == audit.KindBlock:
				gone[b] = true
			}
		}
	}
	var kept []audit.BlockReport
	for i := range after.Blocks {
		if !gone[i] {
			kept = append(kept, after.Blocks[i])
		}
	}
	after.Blocks = kept
	for i := range plan.After {
		if p := poolNamed(after.Pools, plan.After[i].Name); p != nil {
			reservations := p.Reservations
			*p = plan.After[i]
			p.Reservations = reservations
		}
	}
	return &after
}
