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

func (d *Decoder) clusterInfo(r *JSONReader) (blocks.ClusterInfo, bool) {
	c := blocks.ClusterInfo{Present: true}
	ok := d.config(r, &c.Meta, func(key []byte) {
		switch string(key) {
		case "clusterGUID":
			c.GUID = d.text(r)
		case "calicoVersion":
			c.CalicoVersion = d.text(r)
		case "datastoreReady":
			ready, set := r.Boolean()
			c.Locked = set && !ready
		}
	})
	return c, ok
}
