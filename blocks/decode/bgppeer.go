package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
)

var bgpPeers = describe(Kind{
	Resource: blocks.BGPPeers, Names: []string{"BGPPeer"}, Optional: true,
	keeps: calicoObject(rolePeer,
		value("node", 0, roleNode), value("nodeSelector", 0, roleNodeSelector), value("peerIP", 0, roleEndpoint),
		value("peerSelector", 0, roleNodeSelector), value("asNumber", 0, roleAS), value("localASNumber", 0, roleAS),
		value("numAllowedLocalASNumbers", 0, roleNumber), value("reversePeering", 0, roleWord),
		value("localWorkloadSelector", 0, roleWorkloadSelector), listOf("filters", 0, value("", 0, roleFilter))),
}, column[blocks.BGPPeer]{
	json: (*Decoder).bgpPeer,
	in:   func(s *blocks.Snapshot) *[]blocks.BGPPeer { return &s.BGPPeers },
})

func (d *Decoder) bgpPeer(r *JSONReader, p *blocks.BGPPeer) bool {
	localWorkloads, reverse := "", ""
	d.object(r, &p.Meta, metaHooks{}, r.members(Members{
		"node": &p.Node, "nodeSelector": &p.NodeSelector, "peerIP": &p.PeerIP, "peerSelector": &p.PeerSelector,
		"numAllowedLocalASNumbers": &p.AllowedLocalAS, "localWorkloadSelector": &localWorkloads, "reversePeering": &reverse,
		"asNumber":      func() { p.ASNumber, _ = asNumber(r) },
		"localASNumber": func() { p.LocalAS, _ = asNumber(r) },
		"filters":       func() { r.Array(func(int) { p.Filters = append(p.Filters, r.String()) }) },
	}), nil)
	p.LocalWorkloads, p.ManualReverse = localWorkloads != "", reverse == "Manual"
	return d.whole(r, &p.Meta, "")
}
