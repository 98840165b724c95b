package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
)

var clusterInfos = describe(Kind{
	Resource: blocks.ClusterInfos, Names: []string{"ClusterInformation"}, Optional: true,
	keeps: calicoObject(roleDefault,
		value("clusterGUID", 0, roleGUID), value("calicoVersion", 0, roleVersion), value("datastoreReady", 0, roleNumber)),
}, column[blocks.ClusterInfo]{
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
	}})
}
