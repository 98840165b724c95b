package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var bgpPeers = describe(Kind{
	Resource: blocks.BGPPeers, Names: []string{apiv3.KindBGPPeer}, Optional: true,
	Absent: func(s *blocks.Snapshot) string {
		if !s.RequiresBGPPeers() {
			return ""
		}
		return "the files hold no BGPPeer, but the BGPConfiguration turns the mesh off or a node is a route reflector"
	},
	keeps: calicoObject(classPeer,
		value("node", 0, classNode), value("nodeSelector", 0, classNodeSelector), value("peerIP", 0, classEndpoint),
		value("peerSelector", 0, classNodeSelector), value("asNumber", 0, classAS), value("localASNumber", 0, classAS),
		value("numAllowedLocalASNumbers", 0, classNumber), value("reversePeering", 0, classWord),
		value("localWorkloadSelector", 0, classWorkloadSelector), listOf("filters", 0, value("", 0, classFilter))),
}, descriptor[blocks.BGPPeer]{
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
	p.LocalWorkloads, p.ManualReverse = localWorkloads != "", reverse == string(apiv3.ReversePeeringManual)
	if d.Dump && p.PeerIP == "" && p.PeerSelector == "" && !p.LocalWorkloads {
		r.faultAt("spec", "has neither peerIP, peerSelector nor localWorkloadSelector")
	}
	return d.whole(r, &p.Meta, "")
}
