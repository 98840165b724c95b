package decode

import (
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var felixConfigs = describe(Kind{
	Resource: blocks.FelixConfigs, Names: []string{apiv3.KindFelixConfiguration}, Optional: true,
	keeps: keep.CalicoObject(keep.Default,
		parse.Value("bpfEnabled", 0, keep.Number), parse.Value("vxlanEnabled", 0, keep.Number), parse.Value("ipipEnabled", 0, keep.Number), parse.Value("programClusterRoutes", 0, keep.Word),
		parse.Value("routeSource", 0, keep.Word), parse.Value("floatingIPs", 0, keep.Word), parse.Value("vxlanPort", 0, keep.Number), parse.Value("vxlanVNI", 0, keep.Number)),
}, descriptor[blocks.FelixConfig]{
	json: (*Decoder).felixConfig,
	put:  func(s *blocks.Snapshot, c blocks.FelixConfig) { s.Felix = c },
})

func (d *Decoder) felixConfig(r *parse.Reader, c *blocks.FelixConfig) bool {
	c.Present = true
	set := func(to **bool) func() {
		return func() {
			if on, ok := r.Boolean(); ok {
				*to = &on
			}
		}
	}
	return d.config(r, &c.Meta, parse.Members{"bpfEnabled": &c.BPFEnabled, "programClusterRoutes": &c.ProgramClusterRoutes, "routeSource": &c.RouteSource, "floatingIPs": &c.FloatingIPs,
		"vxlanPort": &c.VXLANPort, "vxlanVNI": &c.VXLANVNI, "vxlanEnabled": set(&c.VXLANEnabled), "ipipEnabled": set(&c.IPIPEnabled)}, nil)
}
