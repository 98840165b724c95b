package decode

import (
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var controllersConfigs = describe(Kind{
	Resource: blocks.ControllerConfig, Names: []string{apiv3.KindKubeControllersConfiguration}, Optional: true, always: []string{"controllers"},
	keeps: parse.Object("", 0, append(keep.CalicoObject(keep.Default,
		parse.Object("controllers", 0, parse.Object("node", 0, parse.Value("leakGracePeriod", 0, keep.Duration)), parse.Object("loadBalancer", 0, assignIPs.Parts...)),
	).Parts, parse.Object("status", 0, parse.Object("runningConfig", 0, parse.Entries("controllers", keep.Word, assignIPs))))...),
}, descriptor[blocks.ControllersConfig]{
	json: (*Decoder).controllersConfig,
	put:  func(s *blocks.Snapshot, c blocks.ControllersConfig) { s.Controllers = c },
})

// assignIPs keeps the configuration of the loadBalancer controller.
var assignIPs = parse.Object("", 0, parse.Value("assignIPs", 0, keep.Word))

func (d *Decoder) controllersConfig(r *parse.Reader, c *blocks.ControllersConfig) bool {
	c.Present = true
	assign := func() (there bool) {
		mode := ""
		there = r.Fields(parse.Members{"assignIPs": &mode})
		c.RequestedOnly = mode == string(apiv3.RequestedServicesOnly)
		return there
	}
	return d.config(r, &c.Meta, parse.Members{"controllers": func() {
		r.Fields(parse.Members{
			"node": func() {
				c.NodeController = r.Fields(parse.Members{"leakGracePeriod": func() { c.LeakGrace, c.LeakGraceSet = duration(r) }})
			},
			"loadBalancer": func() { c.LoadBalancer = assign() },
		})
	}}, parse.Members{"runningConfig": func() {
		r.Fields(parse.Members{"controllers": func() {
			r.Object(func(key []byte) { // clients write an empty object before the first report
				if c.Reported = true; string(key) == "loadBalancer" {
					c.LoadBalancerRuns = assign()
				}
			})
		}})
	}})
}

// duration decodes a duration such as "15m0s".
func duration(r *parse.Reader) (time.Duration, bool) {
	s, ok := r.Bytes()
	if !ok {
		return 0, false
	}
	v, err := time.ParseDuration(string(s))
	if err != nil {
		r.Fault(parse.NotA("duration", s))
		return 0, false
	}
	return v, true
}
