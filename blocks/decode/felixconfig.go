package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var felixConfigs = describe(Kind{
	Resource: blocks.FelixConfigs, Names: []string{apiv3.KindFelixConfiguration}, Optional: true,
	keeps: calicoObject(classDefault,
		value("bpfEnabled", 0, classNumber), value("vxlanEnabled", 0, classNumber), value("ipipEnabled", 0, classNumber), value("programClusterRoutes", 0, classWord),
		value("routeSource", 0, classWord), value("floatingIPs", 0, classWord), value("vxlanPort", 0, classNumber), value("vxlanVNI", 0, classNumber)),
}, descriptor[blocks.FelixConfig]{
	json: (*Decoder).felixConfig,
	put:  func(s *blocks.Snapshot, c blocks.FelixConfig) { s.Felix = c },
})

func (d *Decoder) felixConfig(r *JSONReader, c *blocks.FelixConfig) bool {
	c.Present = true
	set := func(to **bool) func() {
		return func() {
			if on, ok := r.Boolean(); ok {
				*to = &on
			}
		}
	}
	return d.config(r, &c.Meta, Members{"bpfEnabled": &c.BPFEnabled, "programClusterRoutes": &c.ProgramClusterRoutes, "routeSource": &c.RouteSource, "floatingIPs": &c.FloatingIPs,
		"vxlanPort": &c.VXLANPort, "vxlanVNI": &c.VXLANVNI, "vxlanEnabled": set(&c.VXLANEnabled), "ipipEnabled": set(&c.IPIPEnabled)}, nil)
}
