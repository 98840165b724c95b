package decode

import (
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var controllersConfigs = describe(Kind{
	Resource: blocks.ControllerConfig, Names: []string{apiv3.KindKubeControllersConfiguration}, Optional: true, always: []string{"controllers"},
	keeps: object("", 0, append(calicoObject(classDefault,
		object("controllers", 0, object("node", 0, value("leakGracePeriod", 0, classDuration)), object("loadBalancer", 0, assignIPs.parts...)),
	).parts, object("status", 0, object("runningConfig", 0, entriesOf("controllers", classWord, assignIPs))))...),
}, descriptor[blocks.ControllersConfig]{
	json: (*Decoder).controllersConfig,
	put:  func(s *blocks.Snapshot, c blocks.ControllersConfig) { s.Controllers = c },
})

// assignIPs keeps the configuration of the loadBalancer controller.
var assignIPs = object("", 0, value("assignIPs", 0, classWord))

func (d *Decoder) controllersConfig(r *JSONReader, c *blocks.ControllersConfig) bool {
	c.Present = true
	assign := func() (there bool) {
		mode := ""
		there = r.Fields(Members{"assignIPs": &mode})
		c.RequestedOnly = mode == string(apiv3.RequestedServicesOnly)
		return there
	}
	return d.config(r, &c.Meta, Members{"controllers": func() {
		r.Fields(Members{
			"node": func() {
				c.NodeController = r.Fields(Members{"leakGracePeriod": func() { c.LeakGrace, c.LeakGraceSet = duration(r) }})
			},
			"loadBalancer": func() { c.LoadBalancer = assign() },
		})
	}}, Members{"runningConfig": func() {
		r.Fields(Members{"controllers": func() {
			r.Object(func(key []byte) { // clients write an empty object before the first report
				if c.Reported = true; string(key) == "loadBalancer" {
					c.LoadBalancerRuns = assign()
				}
			})
		}})
	}})
}

// duration decodes a duration such as "15m0s".
func duration(r *JSONReader) (time.Duration, bool) {
	s, ok := r.str()
	if !ok {
		return 0, false
	}
	v, err := time.ParseDuration(string(s))
	if err != nil {
		r.Fault(NotA("duration", s))
		return 0, false
	}
	return v, true
}
