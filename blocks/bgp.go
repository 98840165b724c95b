package blocks

import (
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// This file has the objects that say which nodes and routers exchange routes,
// and which routes they keep from each other.

// BGPConfig is the BGPConfiguration named "default".
type BGPConfig struct {
	Meta
	Present bool
	// Mesh is the node-to-node mesh; on by default.
	Mesh bool
	// ASNumber is the cluster's AS; 64512 by default.
	ASNumber uint32
}

// DefaultBGPConfig is what Calico assumes where no configuration exists.
func DefaultBGPConfig() BGPConfig { return BGPConfig{Mesh: true, ASNumber: 64512} }

// BGPPeer is a BGPPeer: sessions between the nodes that it is for and what it
// names as their peer.
type BGPPeer struct {
	Meta
	// Node, NodeSelector: which nodes the peering is for; both empty for all.
	Node, NodeSelector string
	// PeerIP and ASNumber describe one peer by its address, with or without a
	// port: a router outside the cluster, or a node. PeerSelector selects nodes as
	// peers instead.
	PeerIP       string
	ASNumber     uint32
	PeerSelector string
	// LocalWorkloads is true for peerings with pods of the node itself
	// (localWorkloadSelector), which concern no other node.
	LocalWorkloads bool
	// LocalAS is the AS that the node shows this peer in place of its own
	// (localASNumber); 0 for its own. Peerings made by PeerSelector ignore it.
	LocalAS uint32
	// AllowedLocalAS is how often a node accepts its own AS in the path of a
	// route from this peer (numAllowedLocalASNumbers); 0 by default. Peerings made
	// by PeerSelector ignore it.
	AllowedLocalAS int
	// ManualReverse is true where the nodes that PeerSelector or PeerIP names do
	// not peer back by themselves (reversePeering: Manual).
	ManualReverse bool
	// Filters are the names of the BGPFilters on the sessions, in the order in
	// which they are asked.
	Filters []string
}

// BGPFilter is a BGPFilter: rules about the routes that a node announces to a
// peer (export) and takes from it (import). The first rule that matches decides;
// where none does, the next filter is asked.
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

// BGPFilterRule is one rule of a BGPFilter. Texts that Calico does not know are
// kept as they stand.
type BGPFilterRule struct {
	// CIDR and Operator say which routes are meant; no valid CIDR means all.
	CIDR     netip.Prefix
	Operator apiv3.BGPFilterMatchOperator
	// MinLength and MaxLength bound the length of the route's own prefix; -1 where
	// they are not set.
	MinLength, MaxLength int
	// Source limits the rule to routes that came from BGP peers
	// ([apiv3.BGPFilterSourceRemotePeers]), Interface to those over interfaces of that name.
	Source    apiv3.BGPFilterMatchSource
	Interface string
	Action    apiv3.BGPFilterAction
}
