package audit

import (
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// WhereaboutsPoolReport is a pool of Whereabouts' with its numbers.
type WhereaboutsPoolReport struct {
	// Name is "namespace/name".
	Name  string `json:"name"`
	Range string `json:"range"`
	// Network is the name of the network; empty for the one without a name.
	Network string `json:"network,omitempty"`
	// Node is the node whose slice of a range the pool is; empty for other pools.
	Node string `json:"node,omitempty"`
	// Attachments are the network attachments that assign from it, as "namespace/name".
	Attachments []string `json:"attachments"`
	// InUse counts the addresses that are recorded.
	InUse blocks.Count `json:"inUse"`
	// Capacity counts the addresses that can be assigned, in use or not, and Available
	// those of them that are not in use. Nil for a range that is too large to be used up.
	Capacity  *blocks.Count `json:"capacity,omitempty"`
	Available *blocks.Count `json:"available,omitempty"`

	// Assignable is what can be assigned of the range, where Capacity is known.
	Assignable []netipx.IPRange `json:"assignable,omitempty"`
	// Allocations are the addresses that are recorded, in order.
	Allocations []WhereaboutsUse `json:"allocations"`
}

// Family returns the family of the pool's addresses.
func (p *WhereaboutsPoolReport) Family() blocks.Family {
	if strings.Contains(p.Range, ":") {
		return blocks.IPv6
	}
	return blocks.IPv4
}

// WhereaboutsUse is an address of a secondary network that is recorded.
type WhereaboutsUse struct {
	IP netip.Addr `json:"ip"`
	// Pod is "namespace/name", as it is recorded; empty if none is.
	Pod string `json:"pod,omitempty"`
	// Lost is true if its pod is gone, or has given it up.
	Lost bool `json:"lost,omitempty"`
}

func whereaboutsReports(st *state.State) (out []WhereaboutsPoolReport) {
	v := whereabouts.Of(st)
	at := map[*whereabouts.Pool]int{}
	for i, p := range v.SecondaryPools {
		r := WhereaboutsPoolReport{
			Name: p.FullName(), Range: p.RangeText, Network: p.Network.Name, Node: p.Node, Attachments: []string{}, Allocations: []WhereaboutsUse{}, InUse: blocks.CountOf(len(p.Allocations)),
		}
		for _, n := range p.Attachments {
			r.Attachments = append(r.Attachments, n.Key().String())
		}
		if capacity, used, known := p.Capacity(); known {
			whole := blocks.CountOf(int(capacity)) // of 32 bits at most
			left := whole.Sub(blocks.CountOf(int(used)))
			r.Capacity, r.Available, r.Assignable = &whole, &left, p.Assignable()
		}
		out, at[p] = append(out, r), i
	}
	for _, a := range v.Allocations {
		use := WhereaboutsUse{IP: a.Addr, Lost: a.Status == whereabouts.Stranded || a.Status == whereabouts.Stale}
		if a.WhereaboutsOwner.Pod != (blocks.Key{}) {
			use.Pod = a.WhereaboutsOwner.Pod.String()
		}
		of := &out[at[a.Pool]]
		of.Allocations = append(of.Allocations, use)
	}
	return out
}
