package decode

import (
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

var controllersConfigs = describe(Kind{
	Resource: blocks.ControllerConfig, Names: []string{apiv3.KindKubeControllersConfiguration}, Optional: true,
	keeps: calicoObject(classDefault,
		object("controllers", 0, object("node", 0, value("leakGracePeriod", 0, classDuration)))),
}, descriptor[blocks.ControllersConfig]{
	json: (*Decoder).controllersConfig,
	put:  func(s *blocks.Snapshot, c blocks.ControllersConfig) { s.Controllers = c },
})

func (d *Decoder) controllersConfig(r *JSONReader, c *blocks.ControllersConfig) bool {
	c.Present = true
	return d.config(r, &c.Meta, Members{"controllers": func() {
		r.Fields(Members{"node": func() {
			c.NodeController = r.Fields(Members{"leakGracePeriod": func() { c.LeakGrace, c.LeakGraceSet = duration(r) }})
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
