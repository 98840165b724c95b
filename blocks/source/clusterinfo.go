package source

import (
	"github.com/calico-audit/calico-audit/blocks"
)

var clusterInfos = describe(kind{
	resource: blocks.ClusterInfos, names: []string{"ClusterInformation"}, optional: true,
	keeps: calicoObject(roleDefault,
		value("clusterGUID", 0, roleGUID), value("calicoVersion", 0, roleVersion), value("datastoreReady", 0, roleNumber)),
}, column[blocks.ClusterInfo]{
	json: (*decoder).clusterInfo,
	put: func(s *blocks.Snapshot, c blocks.ClusterInfo) {
		s.Info = c
		s.Cluster.GUID, s.Cluster.CalicoVersion = c.GUID, c.CalicoVersion
	},
})

func (d *decoder) clusterInfo(r *jsonReader) (blocks.ClusterInfo, bool) {
	c := blocks.ClusterInfo{Present: true}
	ok := d.config(r, &c.Meta, func(key []byte) {
		switch string(key) {
		case "clusterGUID":
			c.GUID = d.text(r)
		case "calicoVersion":
			c.CalicoVersion = d.text(r)
		case "datastoreReady":
			ready, set := r.boolean()
			c.Locked = set && !ready
		}
	})
	return c, ok
}
