package decode

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// defaultAS is Calico's default AS number (libcalico-go clientv3/bgpconfig.go). It reveals
// nothing about the cluster's owner.
const defaultAS = 64512

// asNumber anonymizes an AS number; an invalid one becomes [bad].
func (n *Anonymizer) asNumber(s string) string {
	as, err := numorstring.ASNumberFromString(s)
	switch {
	case err != nil:
		return bad
	case as == defaultAS:
		return s
	}
	return n.Name(alias.AS, strconv.FormatUint(uint64(as), 10))
}

// nodeAddress anonymizes a node's address, with or without a subnet length.
func (n *Anonymizer) nodeAddress(s string) string {
	p, ok := parseNodeAddress(s)
	if !ok {
		return bad
	}
	to := n.Address(p.Addr(), true)
	if strings.Contains(s, "/") {
		return netip.PrefixFrom(to, p.Bits()).String()
	}
	return to.String()
}

// endpoint anonymizes a BGP peer's address, with or without a port.
func (n *Anonymizer) endpoint(s string) string {
	if a, ok := blocks.ParseAddr(s); ok {
		return n.Address(a, true).String()
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(n.Address(p.Addr().Unmap().WithZone(""), true), p.Port()).String()
	}
	return bad
}

// poolCIDR keeps the CIDR of a pool, and records it.
func (n *Anonymizer) poolCIDR(s string) string {
	if p, ok := blocks.ParseCIDR(s); ok {
		n.Pool(p)
	}
	return n.addressList(s)
}

// addressList keeps the addresses and CIDRs of a comma-separated list, except addresses
// that are anonymized elsewhere: a host-network pod has its node's address.
func (n *Anonymizer) addressList(s string) string {
	parts := strings.Split(s, ",")
	for i, p := range parts {
		trimmed := strings.TrimSpace(p)
		one, ok := parseNodeAddress(trimmed)
		a := one.Addr()
		switch to := n.Address(a, false); {
		case trimmed == "":
		case !ok:
			parts[i] = bad
		case to != a && one.IsSingleIP():
			if parts[i] = to.String(); strings.Contains(trimmed, "/") {
				parts[i] = netip.PrefixFrom(to, to.BitLen()).String()
			}
		}
	}
	return strings.Join(parts, ",")
}

// addressJSON keeps the addresses of a JSON list as [Anonymizer.addressList] does.
func (n *Anonymizer) addressJSON(s string) string {
	var list []string
	if json.Unmarshal([]byte(s), &list) != nil {
		return bad
	}
	for i := range list {
		list[i] = n.addressList(list[i])
	}
	out, _ := json.Marshal(list) // strings always marshal
	return string(out)
}

// networks keeps the addresses of a network status as [Anonymizer.addressList] does, and
// anonymizes the names of networks. An unparseable part stays unparseable.
func (n *Anonymizer) networks(s string) string {
	all := []any{}
	reason := networkStatuses([]byte(s), func(one networkStatus) {
		for i, a := range one.IPs {
			one.IPs[i] = n.Address(a, false)
		}
		one.IPs = append([]netip.Addr{}, one.IPs...)
		if namespace, name, ok := strings.Cut(one.Name, "/"); ok {
			one.Name = n.Name(someNamespace, namespace) + "/" + n.Name(someNetwork, name)
		} else {
			one.Name = n.Name(someNetwork, one.Name)
		}
		all = append(all, one)
	})
	if reason != "" {
		all = append(all, map[string][]string{"ips": {bad}})
	}
	out, _ := json.Marshal(all) // strings always marshal
	return string(out)
}
