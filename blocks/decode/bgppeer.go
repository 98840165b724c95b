package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var bgpPeers = describe(Kind{
	Resource: blocks.BGPPeers, Names: []string{apiv3.KindBGPPeer}, Optional: true,
	Absent: func(s *blocks.Snapshot) string {
		if !s.RequiresBGPPeers() {
			return ""
		}
		return "the files hold no BGPPeer, but the BGPConfiguration turns the mesh off or a node is a route reflector"
	},
	keeps: keep.CalicoObject(keep.Peer,
		parse.Value("node", 0, keep.Node), parse.Value("nodeSelector", 0, keep.NodeSelector), parse.Value("peerIP", 0, keep.Endpoint),
		parse.Value("peerSelector", 0, keep.NodeSelector), parse.Value("asNumber", 0, keep.AS), parse.Value("localASNumber", 0, keep.AS),
		parse.Value("numAllowedLocalASNumbers", 0, keep.Number), parse.Value("reversePeering", 0, keep.Word),
		parse.Value("localWorkloadSelector", 0, keep.WorkloadSelector), parse.List("filters", 0, parse.Value("", 0, keep.Filter))),
}, descriptor[blocks.BGPPeer]{
	json: (*Decoder).bgpPeer,
	in:   func(s *blocks.Snapshot) *[]blocks.BGPPeer { return &s.BGPPeers },
})

func (d *Decoder) bgpPeer(r *parse.Reader, p *blocks.BGPPeer) bool {
	localWorkloads, reverse := "", ""
	d.object(r, &p.Meta, metaHooks{}, r.Known(parse.Members{
		"node": &p.Node, "nodeSelector": &p.NodeSelector, "peerIP": &p.PeerIP, "peerSelector": &p.PeerSelector,
		"numAllowedLocalASNumbers": &p.AllowedLocalAS, "localWorkloadSelector": &localWorkloads, "reversePeering": &reverse,
		"asNumber":      func() { p.ASNumber, _ = asNumber(r) },
		"localASNumber": func() { p.LocalAS, _ = asNumber(r) },
		"filters":       func() { r.Array(func(int) { p.Filters = append(p.Filters, r.String()) }) },
	}), nil)
	p.LocalWorkloads, p.ManualReverse = localWorkloads != "", reverse == string(apiv3.ReversePeeringManual)
	if d.Dump && p.PeerIP == "" && p.PeerSelector == "" && !p.LocalWorkloads {
		r.FaultAt("spec", "has neither peerIP, peerSelector nor localWorkloadSelector")
	}
	return d.whole(r, &p.Meta, "")
}
