package decode

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

var pools = describe(Kind{
	Resource: blocks.Pools, Names: []string{"IPPool"},
	keeps: object("", 0, append(calicoObject(rolePool,
		value("cidr", 0, rolePoolCIDR), value("blockSize", 0, roleNumber), value("disabled", 0, roleNumber),
		value("nodeSelector", 0, roleNodeSelector), value("namespaceSelector", 0, roleNamespaceSelector),
		listOf("allowedUses", 0, value("", 0, roleWord)), value("assignmentMode", 0, roleWord),
		value("ipipMode", 0, roleWord), value("vxlanMode", 0, roleWord), value("disableBGPExport", 0, roleNumber),
		object("ipip", 0, value("enabled", 0, roleNumber), value("mode", 0, roleWord)),
	).parts, object("status", 0, listOf("conditions", 0, object("", 0,
		value("type", 0, roleWord), value("status", 0, roleWord), value("reason", 0, roleWord), value("lastTransitionTime", 0, roleTime)))))...),
}, column[blocks.Pool]{
	json: (*Decoder).pool,
	in:   func(s *blocks.Snapshot) *[]blocks.Pool { return &s.Pools },
})

// pool reads an IPPool, and fills in the defaults of libcalico-go
// clientv3/ippool.go, convertIpPoolFromStorage. Pools as Calico v2 stored them,
// with an "ipip" object in place of ipipMode, are converted as in
// backend/k8s/resources/ippool.go, ConvertFromK8s.
func (d *Decoder) pool(r *JSONReader, p *blocks.Pool) bool {
	p.Automatic = true
	var old blocks.Encap
	hasCIDR, hasSize := false, false
	found := d.object(r, &p.Meta, metaHooks{}, r.members(Members{
		"cidr": func() {
			if hasCIDR = !r.Null(); hasCIDR {
				p.CIDR, _ = d.cidr(r)
			}
		},
		"blockSize": func() {
			var n int32
			n, hasSize = r.Int32()
			p.BlockSize = int(n)
		},
		"allowedUses": func() {
			p.Uses = nil
			r.Array(func(int) {
				if s, ok := r.str(); ok {
					p.Uses = append(p.Uses, blocks.Use(d.str(s)))
				}
			})
		},
		"assignmentMode": func() { p.Automatic = r.String() != "Manual" },
		"ipip":           func() { old = oldIPIP(r) },
		"ipipMode":       (*string)(&p.IPIP), "vxlanMode": (*string)(&p.VXLAN),
		"nodeSelector": &p.NodeSelector, "namespaceSelector": &p.NamespaceSelector,
		"disabled": &p.Disabled, "disableBGPExport": &p.DisableBGPExport,
	}), r.members(Members{"conditions": func() { d.poolConditions(r, p) }}))
	if r.err != nil {
		return false
	}
	if found && !hasCIDR {
		r.faultAt("spec.cidr", "is missing")
	}
	if len(p.Uses) == 0 {
		p.Uses = []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}
	}
	p.NodeSelector = cmp.Or(p.NodeSelector, "all()")
	p.IPIP = cmp.Or(old, p.IPIP, blocks.EncapNever)
	p.VXLAN = cmp.Or(p.VXLAN, blocks.EncapNever)
	if p.CIDR.IsValid() {
		if p.BlockSize == 0 {
			p.BlockSize = defaultBlockSize(p.CIDR)
		}
		if hasSize && (p.BlockSize < 1 || p.BlockSize > p.CIDR.Addr().BitLen()) {
			r.faultAt("spec.blockSize", fmt.Sprintf("is %d, not the length of an %v prefix", p.BlockSize, p.Family()))
		}
	}
	checkName(r, &p.Meta)
	if len(r.Faults) == 0 {
		return true
	}
	d.gap(&p.Meta, r.Faults[0]).Prefix = p.CIDR
	return false
}

func defaultBlockSize(cidr netip.Prefix) int {
	if cidr.Addr().Is4() {
		return 26
	}
	return 122
}

// oldIPIP reads the encapsulation of a pool that Calico v2 stored; "" if the
// value is null.
func oldIPIP(r *JSONReader) blocks.Encap {
	enabled, mode := false, ""
	if !r.Fields(Members{"enabled": &enabled, "mode": &mode}) {
		return ""
	}
	switch {
	case !enabled:
		return blocks.EncapNever
	case mode == "cross-subnet":
		return blocks.EncapCrossSubnet
	}
	return blocks.EncapAlways
}

// poolConditions looks for the condition by which Calico v3.32 and newer say
// that a pool hands out nothing.
func (d *Decoder) poolConditions(r *JSONReader, p *blocks.Pool) {
	r.Array(func(int) {
		var kind, status, reason string
		r.Fields(Members{"type": &kind, "status": &status, "reason": &reason, "lastTransitionTime": func() { d.seenTime(r) }})
		if kind == "Allocatable" && status == "False" {
			p.NotAllocatable = cmp.Or(reason, "Unknown")
		}
	})
}
