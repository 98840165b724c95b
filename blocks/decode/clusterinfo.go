package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var clusterInfos = describe(Kind{
	Resource: blocks.ClusterInfos, Names: []string{apiv3.KindClusterInformation}, Optional: true, Lasts: "default",
	keeps: calicoObject(classDefault,
		value("clusterGUID", 0, classGUID), value("calicoVersion", 0, classVersion), value("datastoreReady", 0, classNumber)),
}, descriptor[blocks.ClusterInfo]{
	json: (*Decoder).clusterInfo,
	put: func(s *blocks.Snapshot, c blocks.ClusterInfo) {
		s.Info = c
		s.Cluster.GUID, s.Cluster.CalicoVersion = c.GUID, c.CalicoVersion
	},
})

func (d *Decoder) clusterInfo(r *JSONReader, c *blocks.ClusterInfo) bool {
	c.Present = true
	return d.config(r, &c.Meta, Members{"clusterGUID": &c.GUID, "calicoVersion": &c.CalicoVersion, "datastoreReady": func() {
		ready, set := r.Boolean()
		c.Locked = set && !ready
	}}, nil)
}
