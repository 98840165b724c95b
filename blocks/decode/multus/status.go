package multus

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Status is an entry of a network status.
type Status struct {
	// Name is the attachment's name, usually with its namespace.
	Name string `json:"name,omitempty"`
	// Default is true for the cluster's own network.
	Default bool         `json:"default,omitempty"`
	IPs     []netip.Addr `json:"ips"`
}

// Statuses calls fn for each entry of a network status: a JSON list of networks,
// each with a list "ips". An empty annotation has no entries. reason describes the first
// part that cannot be parsed; fn still gets all other parts.
func Statuses(status []byte, fn func(Status)) (reason string) {
	r := parse.New(status)
	if r.AtEnd() {
		return ""
	}
	r.Array(func(int) {
		var n Status
		r.Object(func(key []byte) {
			switch strings.ToLower(string(key)) { // case-insensitive, like Go's decoders
			case "name":
				r.Quietly(func() { n.Name = r.String() })
			case "default":
				r.Quietly(func() { n.Default, _ = r.Boolean() })
			case "ips":
				r.Array(func(int) {
					s, ok := r.Bytes()
					if !ok {
						return
					}
					if a, ok := blocks.ParseAddr(string(s)); ok {
						n.IPs = append(n.IPs, a)
					} else {
						r.Fault(parse.NotA("address", s))
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

// AnonymizeAsks keeps the networks that a pod asks for, with anonymized names, separated by commas.
func AnonymizeAsks(n *alias.Aliases, s string) string {
	all := blocks.AskedNetworks(s, "")
	for i, one := range all {
		namespace, name, _ := strings.Cut(one, "/")
		if all[i] = n.Name(alias.Network, name); namespace != "" {
			all[i] = n.Name(alias.Namespace, namespace) + "/" + all[i]
		}
	}
	return strings.Join(all, ",")
}

// AnonymizeStatus keeps the addresses of a network status as [alias.Aliases.AddressList] does, and
// anonymizes the names of networks. An unparseable part stays unparseable.
func AnonymizeStatus(n *alias.Aliases, s string) string {
	all := []any{}
	reason := Statuses([]byte(s), func(one Status) {
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
