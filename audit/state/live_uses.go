package state

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// LiveUse is a live claim to an address.
type LiveUse struct {
	Pod    *blocks.Workload
	tunnel string
	Node   string
	// Source says where the claim stands; certain is false for one that only
	// Calico's annotation makes.
	Source  string
	certain bool
}

func (u LiveUse) String() string {
	if u.Pod != nil {
		return "pod " + u.Pod.FullName()
	}
	return "the tunnel of " + u.Node
}

// EachLiveUse calls fn for each address that live pods or tunnels use, in
// order, with all of them.
func (st *State) EachLiveUse(fn func(netip.Addr, []LiveUse)) {
	emit := func(a netip.Addr, pods []use) {
		if users := st.LiveUses(a, pods); len(users) > 0 {
			fn(a, users)
		}
	}
	for i := 0; i < len(st.uses); {
		j := i
		for j < len(st.uses) && st.uses[j].addr == st.uses[i].addr {
			j++
		}
		emit(st.uses[i].addr, st.uses[i:j])
		i = j
	}
	for i := range st.Nodes {
		for _, t := range st.Nodes[i].Tunnels {
			if len(st.Users(t.Addr)) == 0 && st.TunnelsAt(t.Addr)[0].Node == &st.Nodes[i] && st.TunnelsAt(t.Addr)[0].Type == t.Type {
				emit(t.Addr, nil)
			}
		}
	}
}

// LiveUses returns the live claims to an address; pods are those that name it.
func (st *State) LiveUses(a netip.Addr, pods []use) (users []LiveUse) {
	for _, u := range pods {
		if !u.workload.Live() || u.elsewhere {
			continue
		}
		l := LiveUse{Pod: u.workload, Node: u.workload.Node, Source: "Calico's annotation"}
		for _, s := range u.workload.StatusIPs {
			if s == a {
				l.Source, l.certain = "the pod's status", true
			}
		}
		users = append(users, l)
	}
	for i, t := range st.TunnelsAt(a) {
		if slices.ContainsFunc(st.TunnelsAt(a)[:i], func(other TunnelUse) bool { return other.Node == t.Node }) {
			continue // one node, two of its annotations
		}
		users = append(users, LiveUse{tunnel: t.Type, Node: t.Node.Name, Source: "the node's " + t.Type, certain: true})
	}
	return users
}

// Certain returns the uses that more than Calico's annotation proves.
func Certain(all []LiveUse) (users []LiveUse) {
	for _, u := range all {
		if u.certain {
			users = append(users, u)
		}
	}
	return users
}

// EnabledPool returns the most specific enabled pool that contains an address.
func (st *State) EnabledPool(a netip.Addr) *Pool {
	var best *Pool
	for _, p := range st.Pools {
		if !p.Disabled && p.CIDR.Contains(a) && (best == nil || p.CIDR.Bits() > best.CIDR.Bits()) {
			best = p
		}
	}
	return best
}

// Recorded reports whether a block records an address as in use; one that cools
// down is no one's.
func (st *State) Recorded(a netip.Addr) bool {
	r, ok := st.Allocation(a)
	return ok && (r.Attributes() == nil || !r.Attributes().Cooling())
}

// CoveringBlock returns the most specific block that contains an address.
func (st *State) CoveringBlock(a netip.Addr) *Block {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil && st.BlockOf(p) != nil {
			return st.BlockOf(p)
		}
	}
	return nil
}
