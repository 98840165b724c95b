package decode

import (
	"net/netip"
	"slices"
	"strings"
)

// The annotation in which Multus, or another plugin that calls several, tells a pod's
// interfaces and their addresses, and its older name (Kubernetes Network Plumbing
// Working Group, multi-network specification; k8snetworkplumbingwg
// network-attachment-definition-client, NetworkStatus).
const (
	annotationNetworks    = "k8s.v1.cni.cncf.io/network-status"
	annotationNetworksOld = "k8s.v1.cni.cncf.io/networks-status"
)

// networkIPs adds the addresses in a network status to those known: a JSON list of
// networks, each with a list "ips". The reason says what first could not be parsed;
// all that could be is added nevertheless. An empty annotation names none.
func networkIPs(known []netip.Addr, status []byte) (all []netip.Addr, reason string) {
	r := NewJSONReader(status)
	if r.atEnd() {
		return known, ""
	}
	r.Array(func(int) {
		r.Object(func(key []byte) {
			if !strings.EqualFold(string(key), "ips") { // as Go's decoders take it
				return
			}
			r.Array(func(int) {
				s, ok := r.str()
				if !ok {
					return
				}
				a, ok := ParseAddr(string(s))
				switch {
				case !ok:
					r.Fault(NotA("address", s))
				case !slices.Contains(known, a):
					known = append(known, a)
				}
			})
		})
	})
	r.end()
	switch {
	case r.err != nil:
		return known, "is not a JSON list of networks: " + r.err.Error()
	case len(r.Faults) > 0:
		return known, strings.TrimSpace(r.Faults[0].Field + " " + r.Faults[0].Reason)
	}
	return known, ""
}
