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
	// Source is where the claim was found. certain is false if only Calico's annotation makes it.
	Source  string
	certain bool
}

func (u LiveUse) String() string {
	if u.Pod != nil {
		return "pod " + u.Pod.FullName()
	}
	return "the tunnel of " + u.Node
}

// EachSharedUse calls fn, in order, for each address that several may use, with its live pods and
// tunnels. Several pods or tunnels name it, or a host view shows other users. There are few.
func (st *State) EachSharedUse(fn func(netip.Addr, []LiveUse)) {
	st.eachUse(func(a netip.Addr, pods []use) {
		if len(pods)+len(st.tunnels[a])+len(st.seconds[a]) < 2 {
			return
		}
		if users := st.LiveUses(a, pods); len(users) > 0 {
			fn(a, users)
		}
	})
}

// eachUse calls fn for each address that pods or tunnels name, with the pods. Addresses that pods
// name come first, in order.
func (st *State) eachUse(fn func(netip.Addr, []use)) {
	for rest := st.uses; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].addr == rest[0].addr {
			n++
		}
		fn(rest[0].addr, rest[:n])
		rest = rest[n:]
	}
	for i := range st.Nodes {
		for _, t := range st.Nodes[i].Tunnels {
			if first := st.tunnels[t.Addr][0]; first.Node == &st.Nodes[i] && first.Type == t.Type && len(st.NamedBy(t.Addr)) == 0 {
				fn(t.Addr, nil)
			}
		}
	}
}

// LiveUses returns the live claims to an address; pods are the pods that name it.
func (st *State) LiveUses(a netip.Addr, pods []use) (users []LiveUse) {
	for _, u := range pods {
		w := st.podOf(u)
		if !w.Live() || u.elsewhere {
			continue
		}
		l := LiveUse{Pod: w, Node: w.Node, Source: "Calico's annotation"}
		for _, s := range w.StatusIPs {
			if s == a {
				l.Source, l.certain = "the pod's status", true
			}
		}
		users = append(users, l)
	}
	for i, t := range st.TunnelsAt(a) {
		if slices.ContainsFunc(st.TunnelsAt(a)[:i], func(other TunnelUse) bool { return other.Node == t.Node }) {
			continue // the same node in two annotations
		}
		users = append(users, LiveUse{tunnel: t.Type, Node: t.Node.Name, Source: "the node's " + t.Type, certain: true})
	}
	return users
}

// Certain returns the uses that have more proof than Calico's annotation.
func Certain(all []LiveUse) []LiveUse {
	return slices.DeleteFunc(slices.Clone(all), func(u LiveUse) bool { return !u.certain })
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

// recorded reports whether a block records an address as in use; pods are the pods that name it.
// An address in its cooldown is not in use.
func (st *State) recorded(a netip.Addr, pods []use) bool {
	if len(pods) > 0 {
		return pods[0].recorded
	}
	r, ok := st.Allocation(a)
	return ok && (r.Attributes() == nil || r.Kind() != UseCooling)
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
