package affinity

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Fate is what happens to traffic that reaches a block's owner for an address
// that another node borrowed.
type Fate int

// The fates of such traffic.
const (
	// Unknown: it depends on something that the cluster's objects do not tell.
	Unknown Fate = iota
	// Delivered: the owner learns a route to the address.
	Delivered
	// Dropped: the owner's blackhole route wins.
	Dropped
)

// String returns the fate in one word.
func (f Fate) String() string { return [...]string{"unknown", "delivered", "dropped"}[f] }

// Prediction is a fate with the reason for it.
type Prediction struct {
	Fate   Fate
	Reason string
}

// PredictBorrowed says what becomes of traffic to borrowed addresses of a pool
// when it reaches the block's owner, as far as the cluster's BGP and Felix
// configuration tell. It is a verdict on the whole pool; what single nodes,
// filters and route reflectors change about it is not looked at.
//
// The rules follow from who programs routes (confd's bird templates and felix
// dataplane/linux/route_mgr.go) and from BGP's loop protection: a router drops a
// route whose AS path holds its own AS number.
func PredictBorrowed(s *blocks.Snapshot, p *blocks.Pool) Prediction {
	if p.VXLAN != "" && p.VXLAN != blocks.EncapNever {
		return Prediction{Delivered, "the pool uses VXLAN: Felix gives every node a route to each borrowed address"}
	}
	for _, r := range []blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.FelixConfigs} {
		if g, missing := s.Missing(r); missing {
			return Prediction{Unknown, "not known because a read is missing: " + g.String()}
		}
	}
	if !BIRDRoutes(s, p) {
		return Prediction{Delivered, "Felix programs the pool's routes and gives every node one to each borrowed address"}
	}
	switch {
	case p.DisableBGPExport:
		return Prediction{Dropped, "the pool's routes are kept from BGP (disableBGPExport), so the owner never learns the address"}
	case s.BGP.Mesh:
		return Prediction{Delivered, "the BGP node-to-node mesh carries a route to each borrowed address"}
	}
	return predictPeers(s)
}

func predictPeers(s *blocks.Snapshot) Prediction {
	var dropping *blocks.BGPPeer
	unknown := "the node-to-node mesh is off and no BGPPeer tells how nodes learn each other's routes"
	for i := range s.BGPPeers {
		p := &s.BGPPeers[i]
		all := p.Node == "" && (p.NodeSelector == "" || p.NodeSelector == "all()")
		switch {
		case p.PeerSelector != "":
			return Prediction{Delivered, fmt.Sprintf("BGPPeer %q peers nodes with route reflectors in the cluster, which pass a route to each borrowed address on", p.Name)}
		case p.ASNumber == 0:
		case p.ASNumber == s.BGP.ASNumber:
			unknown = fmt.Sprintf("BGPPeer %q is an outside route reflector of the same AS (%d): whether it passes single addresses on is its own configuration", p.Name, p.ASNumber)
		case p.AllowedLocalAS > 0:
			unknown = fmt.Sprintf("nodes accept their own AS in the path from BGPPeer %q (numAllowedLocalASNumbers): it depends on what that router passes on", p.Name)
		case all && dropping == nil:
			dropping = p
		default:
			unknown = fmt.Sprintf("BGPPeer %q concerns some nodes only: it depends on which two nodes are concerned", p.Name)
		}
	}
	switch {
	case dropping == nil:
		return Prediction{Unknown, unknown}
	case nodesHaveOwnAS(s):
		return Prediction{Unknown, "nodes have AS numbers of their own: it depends on which two nodes are concerned"}
	case len(s.BGPPeers) > 1 && !strings.HasPrefix(unknown, "the node-to-node mesh"):
		return Prediction{Unknown, unknown}
	}
	return Prediction{Dropped, fmt.Sprintf("the node-to-node mesh is off and all nodes share AS %d behind AS %d (BGPPeer %q): a route that comes back with their own AS in its path is dropped, so the owner never learns the address and its block's blackhole wins", s.BGP.ASNumber, dropping.ASNumber, dropping.Name)}
}

func nodesHaveOwnAS(s *blocks.Snapshot) bool {
	for i := range s.Nodes {
		if as := s.Nodes[i].ASNumber; as != 0 && as != s.BGP.ASNumber {
			return true
		}
	}
	return false
}

// AtLeast tells whether a Calico version such as "v3.32.1" is major.minor or
// newer. An unknown version is not.
func AtLeast(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	if errA != nil || errB != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
