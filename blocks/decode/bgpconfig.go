package decode

import (
	"math"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

var bgpConfigs = describe(Kind{
	Resource: blocks.BGPConfigs, Names: []string{"BGPConfiguration"}, Optional: true,
	keeps: calicoObject(roleDefault, value("nodeToNodeMeshEnabled", 0, roleNumber), value("asNumber", 0, roleAS)),
}, column[blocks.BGPConfig]{
	json: (*Decoder).bgpConfig,
	put:  func(s *blocks.Snapshot, c blocks.BGPConfig) { s.BGP = c }, otherwise: blocks.DefaultBGPConfig(),
})

func (d *Decoder) bgpConfig(r *JSONReader, c *blocks.BGPConfig) bool {
	*c = blocks.DefaultBGPConfig()
	c.Present = true
	return d.config(r, &c.Meta, Members{
		"nodeToNodeMeshEnabled": func() {
			if v, set := r.Boolean(); set {
				c.Mesh = v
			}
		},
		"asNumber": func() {
			if n, set := asNumber(r); set {
				c.ASNumber = n
			}
		},
	})
}

// asNumber reads an AS number: an integer, or a text in plain or dotted notation
// (api/pkg/lib/numorstring/asnumber.go).
func asNumber(r *JSONReader) (uint32, bool) {
	if r.Peek() == '"' {
		s, ok := r.str()
		if !ok {
			return 0, false
		}
		n, ok := parseASNumber(string(s))
		if !ok {
			r.Fault(NotA("AS number", s))
		}
		return n, ok
	}
	n, ok := r.uint()
	if ok && n > math.MaxUint32 {
		r.Fault("is " + strconv.FormatUint(n, 10) + ", not an AS number")
		return 0, false
	}
	return uint32(n), ok
}

func parseASNumber(s string) (uint32, bool) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), true
	}
	high, low, found := strings.Cut(s, ".")
	h, err1 := strconv.ParseUint(high, 10, 16)
	l, err2 := strconv.ParseUint(low, 10, 16)
	if !found || err1 != nil || err2 != nil {
		return 0, false
	}
	return uint32(h<<16 | l), true
}
