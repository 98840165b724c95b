package decode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// The annotation with a pod's interfaces and addresses that Multus and similar plugins
// write, and its older name (Kubernetes Network Plumbing Working Group, multi-network
// specification; k8snetworkplumbingwg network-attachment-definition-client, NetworkStatus).
const (
	annotationNetworks    = "k8s.v1.cni.cncf.io/network-status"
	annotationNetworksOld = "k8s.v1.cni.cncf.io/networks-status"
	annotationAsks        = "k8s.v1.cni.cncf.io/networks"
)

// networkStatus is an entry of a network status.
type networkStatus struct {
	// Name is the attachment's name, usually with its namespace.
	Name string `json:"name,omitempty"`
	// Default is true for the cluster's own network.
	Default bool         `json:"default,omitempty"`
	IPs     []netip.Addr `json:"ips"`
}

// networkStatuses calls fn for each entry of a network status: a JSON list of networks,
// each with a list "ips". An empty annotation has no entries. reason describes the first
// part that cannot be parsed; fn still gets all other parts.
func networkStatuses(status []byte, fn func(networkStatus)) (reason string) {
	r := parse.New(status)
	if r.AtEnd() {
		return ""
	}
	r.Array(func(int) {
		var n networkStatus
		r.Object(func(key []byte) {
			switch strings.ToLower(string(key)) { // case-insensitive, like Go's decoders
			case "name":
				quietly(r, func() { n.Name = r.String() })
			case "default":
				quietly(r, func() { n.Default, _ = r.Boolean() })
			case "ips":
				r.Array(func(int) {
					s, ok := r.Bytes()
					if !ok {
						return
					}
					if a, ok := blocks.ParseAddr(string(s)); ok {
						n.IPs = append(n.IPs, a)
					} else {
						r.Fault(NotA("address", s))
					}
				})
			}
		})
		fn(n)
	})
	r.End()
	switch {
	case r.Err() != nil:
		return "is not a JSON list of networks: " + r.Err().Error()
	case len(r.Faults) > 0:
		return strings.TrimSpace(r.Faults[0].Field + " " + r.Faults[0].Reason)
	}
	return ""
}

// networkStatus decodes the network status of a pod.
func (d *Decoder) networkStatus(r *parse.Reader, p *blocks.Workload, status []byte) {
	reason := networkStatuses(status, func(n networkStatus) {
		if x := p.Extend(); !n.Default {
			x.Interfaces = append(x.Interfaces, d.str([]byte(n.Name)))
		}
		for _, a := range n.IPs {
			x := p.Extend()
			if !slices.Contains(x.NetworkIPs, a) {
				x.NetworkIPs = append(x.NetworkIPs, a)
			}
			if on := (blocks.AttachedAddress{Network: d.str([]byte(n.Name)), Addr: a}); !n.Default && !slices.Contains(x.Attached, on) {
				x.Attached = append(x.Attached, on)
			}
		}
	})
	if reason != "" {
		r.Fault(reason)
	}
	p.Extend().NetworkStatus = reason == "" && len(strings.TrimSpace(string(status))) > 0
}

// asks keeps the networks that a pod asks for, with anonymized names, separated by commas.
func asks(n *alias.Aliases, s string) string {
	all := blocks.AskedNetworks(s, "")
	for i, one := range all {
		namespace, name, _ := strings.Cut(one, "/")
		if all[i] = n.Name(alias.Network, name); namespace != "" {
			all[i] = n.Name(alias.Namespace, namespace) + "/" + all[i]
		}
	}
	return strings.Join(all, ",")
}

// networks keeps the addresses of a network status as [alias.Aliases.AddressList] does, and
// anonymizes the names of networks. An unparseable part stays unparseable.
func networks(n *alias.Aliases, s string) string {
	all := []any{}
	reason := networkStatuses([]byte(s), func(one networkStatus) {
		for i, a := range one.IPs {
			one.IPs[i] = n.Address(a, false)
		}
		one.IPs = append([]netip.Addr{}, one.IPs...)
		if namespace, name, ok := strings.Cut(one.Name, "/"); ok {
			one.Name = n.Name(alias.Namespace, namespace) + "/" + n.Name(alias.Network, name)
		} else {
			one.Name = n.Name(alias.Network, one.Name)
		}
		all = append(all, one)
	})
	if reason != "" {
		all = append(all, map[string][]string{"ips": {alias.Bad}})
	}
	out, _ := json.Marshal(all) // strings always marshal
	return string(out)
}
