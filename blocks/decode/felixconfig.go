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

func (d *Decoder) felixConfig(r *JSONReader) (blocks.FelixConfig, bool) {
	c := blocks.FelixConfig{Present: true}
	ok := d.config(r, &c.Meta, func(key []byte) {
		switch string(key) {
		case "bpfEnabled":
			c.BPFEnabled, _ = r.Boolean()
		case "programClusterRoutes":
			c.ProgramClusterRoutes = d.text(r)
		case "routeSource":
			c.RouteSource = d.text(r)
		}
	})
	return c, ok
}
