package decode

import (
	"math"
	"strconv"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var bgpConfigs = describe(Kind{
	Resource: blocks.BGPConfigs, Names: []string{apiv3.KindBGPConfiguration}, Optional: true,
	Absent: func(s *blocks.Snapshot) string {
		if !s.MayBorrow() {
			return ""
		}
		return "the files hold no BGPConfiguration, but nodes borrow addresses or lack a block: whether traffic to borrowed addresses arrives is not known"
	},
	keeps: keep.CalicoObject(keep.Default, parse.Value("nodeToNodeMeshEnabled", 0, keep.Number), parse.Value("asNumber", 0, keep.AS),
		parse.List("serviceLoadBalancerIPs", 0, parse.Object("", 0, parse.Value("cidr", 0, keep.Addresses))), parse.Value("serviceLoadBalancerAggregation", 0, keep.Word)),
}, descriptor[blocks.BGPConfig]{
	json: (*Decoder).bgpConfig,
	put:  func(s *blocks.Snapshot, c blocks.BGPConfig) { s.BGP = c }, otherwise: blocks.DefaultBGPConfig(),
})

func (d *Decoder) bgpConfig(r *parse.Reader, c *blocks.BGPConfig) bool {
	*c = blocks.DefaultBGPConfig()
	c.Present = true
	return d.config(r, &c.Meta, parse.Members{
		"nodeToNodeMeshEnabled": func() {
			if v, set := r.Boolean(); set {
				c.Mesh = v
			}
		},
		"serviceLoadBalancerAggregation": func() { c.Singly = r.String() == "Disabled" },
		"serviceLoadBalancerIPs": func() {
			r.Array(func(int) {
				r.Fields(parse.Members{"cidr": func() { c.LoadBalancerIPs = strings.TrimPrefix(c.LoadBalancerIPs+","+r.String(), ",") }})
			})
		},
		"asNumber": func() {
			if n, set := asNumber(r); set {
				c.ASNumber = n
			}
		},
	}, nil)
}

// asNumber decodes an AS number: an integer, or a string in plain or dotted notation
// (api/pkg/lib/numorstring/asnumber.go).
func asNumber(r *parse.Reader) (uint32, bool) {
	if r.Peek() == '"' {
		s, ok := r.Bytes()
		if !ok {
			return 0, false
		}
		n, err := numorstring.ASNumberFromString(string(s))
		if err != nil {
			r.Fault(parse.NotA("AS number", s))
		}
		return uint32(n), err == nil
	}
	n, ok := r.Uint()
	if ok && n > math.MaxUint32 {
		r.Fault("is " + strconv.FormatUint(n, 10) + ", not an AS number")
		return 0, false
	}
	return uint32(n), ok
}
