package state

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// PoolName returns a pool's name for texts.
func PoolName(p *Pool) string {
	if p == nil {
		return "none"
	}
	return p.Name
}

// CIDRs returns the CIDRs of blocks.
func CIDRs(bs []*Block) blocks.Names {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = b.CIDR.String()
	}
	return out
}

// PoolNames lists the names of pools, for use in a sentence.
func PoolNames(ps []*Pool) string {
	if len(ps) == 1 {
		return "pool " + ps[0].Name
	}
	return "pools " + strings.Join(PoolsOf(ps...), ", ")
}
