package blocks

import (
	"net/netip"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// This file holds the objects that decide which nodes and routers exchange routes, and
// which routes they filter.

// BGPConfig is the BGPConfiguration named "default".
type BGPConfig struct {
	Meta
	Present bool
	// Mesh reports whether the node-to-node mesh is on, which is the default.
	Mesh bool
	// ASNumber is the cluster's AS number; 64512 by default.
	ASNumber uint32
	// LoadBalancerIPs are the ranges of Services' addresses that it announces
	// (serviceLoadBalancerIPs), separated by commas. Singly is true if it announces each address by
	// itself (serviceLoadBalancerAggregation: Disabled).
	LoadBalancerIPs string
	Singly          bool
}

// LoadBalancerRange returns the smallest of the LoadBalancerIPs with an address; false if there is none.
func (c *BGPConfig) LoadBalancerRange(a netip.Addr) (smallest netip.Prefix, ok bool) {
	for one := range strings.SplitSeq(c.LoadBalancerIPs, ",") {
		if p, is := ParseCIDR(one); is && p.Contains(a) && (!ok || p.Bits() > smallest.Bits()) {
			smallest, ok = p, true
		}
	}
	return smallest, ok
}

// DefaultBGPConfig returns Calico's defaults for a cluster without a BGPConfiguration.
func DefaultBGPConfig() BGPConfig { return BGPConfig{Mesh: true, ASNumber: 64512} }

// RequiresBGPPeers reports whether nodes have no BGP session without a BGPPeer: all of them if the mesh is
// off, else the route reflectors, which take no part in it.
func (s *Snapshot) RequiresBGPPeers() bool {
	return s.BGP.Present && !s.BGP.Mesh || slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.RouteReflectorID != "" })
}

// BGPPeer is a BGPPeer: BGP sessions between the selected nodes and a peer.
type BGPPeer struct {
	Meta
	// Node and NodeSelector select the nodes that peer. If both are empty, all nodes do.
	Node, NodeSelector string
	// PeerIP and ASNumber describe one peer, a node or a router outside the cluster. The
	// address may carry a port. PeerSelector selects nodes as peers instead.
	PeerIP       string
	ASNumber     uint32
	PeerSelector string
	// LocalWorkloads is true for peerings with the node's own pods (localWorkloadSelector).
	// They affect no other node.
	LocalWorkloads bool
	// LocalAS is the AS number that the node presents to this peer instead of its own
	// (localASNumber); 0 means its own. Peerings with a PeerSelector ignore it.
	LocalAS uint32
	// AllowedLocalAS is how often the node's own AS number may appear in the path of a
	// route from this peer (numAllowedLocalASNumbers); 0 by default. Peerings with a
	// PeerSelector ignore it.
	AllowedLocalAS int
	// ManualReverse is true if the peer nodes do not peer back automatically
	// (reversePeering: Manual).
	ManualReverse bool
	// Filters are the names of the BGPFilters on the sessions, in the order of evaluation.
	Filters []string
}

// BGPFilter is a BGPFilter: rules for the routes that a node announces to a peer (export)
// or accepts from it (import). The first matching rule decides; without a match, the next
// filter is evaluated.
type BGPFilter struct {
	Meta
	ExportV4, ImportV4 []BGPFilterRule
	ExportV6, ImportV6 []BGPFilterRule
}

// Rules returns the rules for one family and direction.
func (f *BGPFilter) Rules(family Family, export bool) []BGPFilterRule {
	switch {
	case family == IPv4 && export:
		return f.ExportV4
	case family == IPv4:
		return f.ImportV4
	case export:
		return f.ExportV6
	}
	return f.ImportV6
}

// BGPFilterRule is one rule of a BGPFilter. Unknown enum values are kept as stored.
type BGPFilterRule struct {
	// CIDR and Operator select routes by prefix; an invalid CIDR matches all routes.
	CIDR     netip.Prefix
	Operator apiv3.BGPFilterMatchOperator
	// MinLength and MaxLength bound the route's prefix length; -1 means unset.
	MinLength, MaxLength int
	// Source limits the rule to routes learned from BGP peers
	// ([apiv3.BGPFilterSourceRemotePeers]). Interface limits it to routes over interfaces
	// of that name.
	Source    apiv3.BGPFilterMatchSource
	Interface string
	Action    apiv3.BGPFilterAction
}
