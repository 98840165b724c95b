package decode

import (
	"bytes"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var reservations = describe(Kind{
	Resource: blocks.Reservations, Names: []string{apiv3.KindIPReservation}, Optional: true,
	keeps: keep.CalicoObject(keep.Reservation, parse.List("reservedCIDRs", 0, parse.Value("", 0, keep.Addresses))),
}, descriptor[blocks.Reservation]{
	json: (*Decoder).reservation,
	in:   func(s *blocks.Snapshot) *[]blocks.Reservation { return &s.Reservations },
})

// reservation decodes an IPReservation. An invalid CIDR is omitted, with a gap of its own.
// Calico also accepts single addresses, and skips empty entries (libcalico-go ipam/ipam.go,
// getReservedIPs).
func (d *Decoder) reservation(r *parse.Reader, v *blocks.Reservation) bool {
	d.object(r, &v.Meta, metaHooks{annotation: func(key, value []byte) {
		if string(key) == blocks.OursAnnotation {
			v.Ours = d.str(value)
		}
	}}, func(key []byte) {
		if string(key) != "reservedCIDRs" {
			return
		}
		v.CIDRs = nil
		r.Array(func(int) {
			s, ok := r.Bytes()
			if s = bytes.TrimSpace(s); !ok || len(s) == 0 {
				return
			}
			if p, ok := parseReserved(string(s)); ok {
				v.CIDRs = append(v.CIDRs, p)
			} else {
				r.Fault(parse.NotA("CIDR", s))
			}
		})
	}, nil)
	return d.whole(r, &v.Meta, "spec.reservedCIDRs")
}

func parseReserved(s string) (netip.Prefix, bool) {
	if p, ok := blocks.ParseCIDR(s); ok {
		return p, true
	}
	a, ok := blocks.ParseAddr(s)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}
