package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var clusterInfos = describe(Kind{
	Resource: blocks.ClusterInfos, Names: []string{apiv3.KindClusterInformation}, Optional: true, Lasts: "default",
	keeps: keep.CalicoObject(keep.Default,
		parse.Value("clusterGUID", 0, keep.GUID), parse.Value("calicoVersion", 0, keep.Version), parse.Value("datastoreReady", 0, keep.Number)),
}, descriptor[blocks.ClusterInfo]{
	json: (*Decoder).clusterInfo,
	put: func(s *blocks.Snapshot, c blocks.ClusterInfo) {
		s.Info = c
		s.Cluster.GUID, s.Cluster.CalicoVersion = c.GUID, c.CalicoVersion
	},
})

func (d *Decoder) clusterInfo(r *parse.Reader, c *blocks.ClusterInfo) bool {
	c.Present = true
	return d.config(r, &c.Meta, parse.Members{"clusterGUID": &c.GUID, "calicoVersion": &c.CalicoVersion, "datastoreReady": func() {
		ready, set := r.Boolean()
		c.Locked = set && !ready
	}}, nil)
}
