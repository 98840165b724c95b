package decode

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/multus"
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

// networkStatus decodes the network status of a pod.
func (d *Decoder) networkStatus(r *parse.Reader, p *blocks.Workload, status []byte) {
	reason := multus.Statuses(status, func(n multus.Status) {
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
