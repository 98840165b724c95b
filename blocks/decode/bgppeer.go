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

func (d *Decoder) bgpPeer(r *JSONReader) (p blocks.BGPPeer, ok bool) {
	d.object(r, &p.Meta, metaHooks{}, func(key []byte) {
		switch string(key) {
		case "node":
			p.Node = d.text(r)
		case "nodeSelector":
			p.NodeSelector = d.text(r)
		case "peerIP":
			p.PeerIP = d.text(r)
		case "peerSelector":
			p.PeerSelector = d.text(r)
		case "asNumber":
			p.ASNumber, _ = asNumber(r)
		case "numAllowedLocalASNumbers":
			n, _ := r.Int32()
			p.AllowedLocalAS = int(n)
		case "localASNumber":
			p.LocalAS, _ = asNumber(r)
		case "localWorkloadSelector":
			p.LocalWorkloads = d.text(r) != ""
		case "reversePeering":
			p.ManualReverse = d.text(r) == "Manual"
		case "filters":
			r.Array(func(int) { p.Filters = append(p.Filters, d.text(r)) })
		}
	}, nil)
	return p, d.whole(r, &p.Meta, "")
}
