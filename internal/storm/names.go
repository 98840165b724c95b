package storm

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

// blockName returns the name of a block's object, derived from its CIDR.
func blockName(cidr netip.Prefix) string {
	net := cnet.IPNet{IPNet: *ipNet(cidr)}
	name := strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(net.String())
	return name
}

// affinityName returns the name of an affinity's object.
func affinityName(node string, cidr netip.Prefix) string {
	return fmt.Sprintf("%s-%s", node, blockName(cidr))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func calicoNet(p netip.Prefix) cnet.IPNet { return cnet.IPNet{IPNet: *ipNet(p)} }
