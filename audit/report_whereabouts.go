package audit

import (
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// WhereaboutsPoolReport is a Whereabouts IPPool with its counts.
type WhereaboutsPoolReport struct {
	// Name is "namespace/name".
	Name  string `json:"name"`
	Range string `json:"range"`
	// Network is the network's name; empty for the unnamed network.
	Network string `json:"network,omitempty"`
	// Node is set if the pool is one node's slice of a range.
	Node string `json:"node,omitempty"`
	// Attachments are the network attachments that assign from the pool, as
	// "namespace/name".
	Attachments []string `json:"attachments"`
	// InUse counts the recorded addresses.
	InUse blocks.Count `json:"inUse"`
	// Capacity counts the assignable addresses, used or not. Available counts the unused
	// part. Both are nil if the range is too large to run out.
	Capacity  *blocks.Count `json:"capacity,omitempty"`
	Available *blocks.Count `json:"available,omitempty"`

	// Assignable are the assignable ranges; nil if Capacity is nil.
	Assignable []netipx.IPRange `json:"assignable,omitempty"`
	// Allocations are the recorded addresses, in order.
	Allocations []WhereaboutsUse `json:"allocations"`
}

// Family returns the IP family of the pool.
func (p *WhereaboutsPoolReport) Family() blocks.Family {
	if strings.Contains(p.Range, ":") {
		return blocks.IPv6
	}
	return blocks.IPv4
}

// WhereaboutsUse is a recorded address of a secondary network.
type WhereaboutsUse struct {
	IP netip.Addr `json:"ip"`
	// Pod is the recorded "namespace/name"; empty if there is none.
	Pod string `json:"pod,omitempty"`
	// Lost is true if the pod no longer exists or no longer uses the address.
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
			whole := blocks.CountOf(int(capacity)) // at most 32 bits
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
