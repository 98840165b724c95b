package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
)

var felixConfigs = describe(Kind{
	Resource: blocks.FelixConfigs, Names: []string{"FelixConfiguration"}, Optional: true,
	keeps: calicoObject(roleDefault,
		value("bpfEnabled", 0, roleNumber), value("programClusterRoutes", 0, roleWord),
		value("routeSource", 0, roleWord)),
}, column[blocks.FelixConfig]{
	json: (*Decoder).felixConfig,
	put:  func(s *blocks.Snapshot, c blocks.FelixConfig) { s.Felix = c },
})

func (d *Decoder) felixConfig(r *JSONReader, c *blocks.FelixConfig) bool {
	c.Present = true
	return d.config(r, &c.Meta, Members{"bpfEnabled": &c.BPFEnabled, "programClusterRoutes": &c.ProgramClusterRoutes, "routeSource": &c.RouteSource})
}
