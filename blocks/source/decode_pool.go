package source

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// pool reads an IPPool, and fills in the defaults of libcalico-go
// clientv3/ippool.go, convertIpPoolFromStorage. Pools as Calico v2 stored them,
// with an "ipip" object in place of ipipMode, are converted as in
// backend/k8s/resources/ippool.go, ConvertFromK8s.
func (d *decoder) pool(r *jsonReader) {
	p := blocks.Pool{Automatic: true}
	hasCIDR, hasSize := false, false
	found := r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &p.Meta, metaHooks{})
		case "spec":
			var old blocks.Encap
			r.object(func(key []byte) {
				switch string(key) {
				case "cidr":
					if hasCIDR = !r.null(); hasCIDR {
						p.CIDR, _ = d.cidr(r)
					}
				case "blockSize":
					var n int32
					n, hasSize = r.int32()
					p.BlockSize = int(n)
				case "ipip":
					old = oldIPIP(r)
				default:
					d.poolField(r, &p, key)
				}
			})
			if old != "" {
				p.IPIP = old
			}
		case "status":
			r.object(func(key []byte) {
				if string(key) == "conditions" {
					d.poolConditions(r, &p)
				}
			})
		}
	})
	if r.err != nil {
		return
	}
	if found && !hasCIDR {
		r.faultAt("spec.cidr", "is missing")
	}
	if len(p.Uses) == 0 {
		p.Uses = []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}
	}
	if p.NodeSelector == "" {
		p.NodeSelector = "all()"
	}
	if p.IPIP == "" {
		p.IPIP = blocks.EncapNever
	}
	if p.VXLAN == "" {
		p.VXLAN = blocks.EncapNever
	}
	if p.CIDR.IsValid() {
		if p.BlockSize == 0 {
			p.BlockSize = defaultBlockSize(p.CIDR)
		}
		if hasSize && (p.BlockSize < 1 || p.BlockSize > p.CIDR.Addr().BitLen()) {
			r.faultAt("spec.blockSize", fmt.Sprintf("is %d, not the length of an %v prefix", p.BlockSize, p.Family()))
		}
	}
	checkName(r, &p.Meta)
	if len(r.faults) == 0 {
		d.out.pools = append(d.out.pools, p)
		return
	}
	d.gap(blocks.Pools, &p.Meta, r.faults[0]).Prefix = p.CIDR
}

func defaultBlockSize(cidr netip.Prefix) int {
	if cidr.Addr().Is4() {
		return 26
	}
	return 122
}

func (d *decoder) poolField(r *jsonReader, p *blocks.Pool, key []byte) {
	switch string(key) {
	case "disabled":
		p.Disabled, _ = r.boolean()
	case "nodeSelector":
		p.NodeSelector = d.text(r)
	case "namespaceSelector":
		p.NamespaceSelector = d.text(r)
	case "allowedUses":
		p.Uses = nil
		r.array(func(int) {
			if s, ok := r.str(); ok {
				p.Uses = append(p.Uses, blocks.Use(d.str(s)))
			}
		})
	case "assignmentMode":
		s, ok := r.str()
		p.Automatic = !ok || string(s) != "Manual"
	case "ipipMode":
		p.IPIP = blocks.Encap(d.text(r))
	case "vxlanMode":
		p.VXLAN = blocks.Encap(d.text(r))
	case "disableBGPExport":
		p.DisableBGPExport, _ = r.boolean()
	}
}

// oldIPIP reads the encapsulation of a pool that Calico v2 stored; "" if the
// value is null.
func oldIPIP(r *jsonReader) blocks.Encap {
	enabled, crossSubnet := false, false
	if !r.object(func(key []byte) {
		switch string(key) {
		case "enabled":
			enabled, _ = r.boolean()
		case "mode":
			s, _ := r.str()
			crossSubnet = string(s) == "cross-subnet"
		}
	}) {
		return ""
	}
	switch {
	case !enabled:
		return blocks.EncapNever
	case crossSubnet:
		return blocks.EncapCrossSubnet
	}
	return blocks.EncapAlways
}

// poolConditions looks for the condition by which Calico v3.32 and newer say
// that a pool hands out nothing.
func (d *decoder) poolConditions(r *jsonReader, p *blocks.Pool) {
	r.array(func(int) {
		var kind, status, reason string
		r.object(func(key []byte) {
			switch string(key) {
			case "type":
				kind = d.text(r)
			case "status":
				status = d.text(r)
			case "reason":
				reason = d.text(r)
			case "lastTransitionTime":
				d.seenTime(r)
			}
		})
		if kind == "Allocatable" && status == "False" {
			if p.NotAllocatable = reason; reason == "" {
				p.NotAllocatable = "Unknown"
			}
		}
	})
}

// reservation reads an IPReservation. A CIDR that is none is left out, as a gap
// of its own. Calico takes single addresses, too, and passes over empty entries
// (libcalico-go ipam/ipam.go, getReservedIPs).
func (d *decoder) reservation(r *jsonReader) {
	var v blocks.Reservation
	r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &v.Meta, metaHooks{})
		case "spec":
			r.object(func(key []byte) {
				if string(key) != "reservedCIDRs" {
					return
				}
				v.CIDRs = nil
				r.array(func(int) {
					s, ok := r.str()
					if s = bytes.TrimSpace(s); !ok || len(s) == 0 {
						return
					}
					if p, ok := parseReserved(string(s)); ok {
						v.CIDRs = append(v.CIDRs, p)
					} else {
						r.fault(notA("CIDR", s))
					}
				})
			})
		}
	})
	if r.err != nil {
		return
	}
	checkName(r, &v.Meta)
	if f, ok := faultOutside(r.faults, "spec.reservedCIDRs"); ok {
		d.gap(blocks.Reservations, &v.Meta, f)
		return
	}
	d.gapPerFault(blocks.Reservations, v.Name, r.faults)
	d.out.reservations = append(d.out.reservations, v)
}

func parseReserved(s string) (netip.Prefix, bool) {
	if p, ok := parseCIDR(s); ok {
		return p, true
	}
	a, ok := parseAddr(s)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}
