package alias

import (
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// PodRef anonymizes "NAMESPACE/POD".
func (n *Aliases) PodRef(s string) string {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return Bad
	}
	return n.Name(Namespace, namespace) + "/" + n.Name(Pod, name)
}

// SeparateNetwork notes, in the first round, a network name that separates Whereabouts'
// networks.
func (n *Aliases) SeparateNetwork(name string) {
	if n.collecting && name != "" {
		n.networksOf[name] = true
	}
}

// RangeName anonymizes the network in the name of a Whereabouts pool.
func (n *Aliases) RangeName(s string) string { return n.networkOf(s, isRangeName) }

// AddressName anonymizes the network in the name of a Whereabouts reservation.
func (n *Aliases) AddressName(s string) string { return n.networkOf(s, isAddressName) }

// networkOf anonymizes the network in the name of a Whereabouts pool or reservation. is
// reports whether the rest of the name is a valid range or address.
func (n *Aliases) networkOf(s string, is func(string) bool) string {
	var at []int // possible ends of the network's name, shortest first
	for i := range len(s) {
		if s[i] == '-' && is(s[i+1:]) {
			at = append(at, i)
			n.Name(Network, s[:i])
		}
	}
	for _, i := range at { // prefer a known network, even if all of s parses as an address
		if n.networksOf[s[:i]] {
			return n.Name(Network, s[:i]) + s[i:]
		}
	}
	switch {
	case is(s):
		return s
	case len(at) > 0:
		return n.slice(s[:at[0]]) + s[at[0]:]
	}
	return n.Name(Network, s)
}

// slice anonymizes the part of a pool's name before its range: a network, the node that
// owns the slice, or both.
func (n *Aliases) slice(prefix string) string {
	if n.Collecting() {
		return n.Name(Network, prefix)
	}
	for i := range len(prefix) {
		if node := n.Name(Node, prefix[i+1:]); prefix[i] == '-' && node != "" && n.networksOf[prefix[:i]] {
			return n.Name(Network, prefix[:i]) + "-" + node
		}
	}
	if node := n.Name(Node, prefix); node != "" && !n.networksOf[prefix] {
		return node
	}
	return n.Name(Network, prefix)
}

// isRangeName and isAddressName report whether Whereabouts makes such names for ranges or
// addresses.
func isRangeName(s string) bool {
	i := strings.LastIndexByte(s, '-')
	_, network := blocks.ParseNetwork(strings.ReplaceAll(s[:max(i, 0)], "-", ":") + "/" + s[i+1:])
	return i > 0 && isAddressName(s[:i]) && network
}

func isAddressName(s string) bool {
	_, err := netip.ParseAddr(strings.ReplaceAll(s, "-", ":"))
	return err == nil
}
