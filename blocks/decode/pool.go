package decode

import (
	"cmp"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var pools = describe(Kind{
	Resource: blocks.Pools, Names: []string{apiv3.KindIPPool}, Absent: always("no IPPool in the files"),
	keeps: parse.Object("", 0, append(keep.CalicoObject(keep.Pool,
		parse.Value("cidr", 0, keep.PoolCIDR), parse.Value("blockSize", 0, keep.Number), parse.Value("disabled", 0, keep.Number),
		parse.Value("nodeSelector", 0, keep.NodeSelector), parse.Value("namespaceSelector", 0, keep.NamespaceSelector),
		parse.List("allowedUses", 0, parse.Value("", 0, keep.Word)), parse.Value("assignmentMode", 0, keep.Word),
		parse.Value("ipipMode", 0, keep.Word), parse.Value("vxlanMode", 0, keep.Word), parse.Value("natOutgoing", 0, keep.Number), parse.Value("nat-outgoing", 0, keep.Number), parse.Value("disableBGPExport", 0, keep.Number),
		parse.Object("ipip", 0, parse.Value("enabled", 0, keep.Number), parse.Value("mode", 0, keep.Word)),
	).Parts, parse.Object("status", 0, parse.List("conditions", 0, parse.Object("", 0,
		parse.Value("type", 0, keep.Word), parse.Value("status", 0, keep.Word), parse.Value("reason", 0, keep.Word), parse.Value("lastTransitionTime", 0, keep.Time)))))...),
}, descriptor[blocks.Pool]{
	json: (*Decoder).pool,
	in:   func(s *blocks.Snapshot) *[]blocks.Pool { return &s.Pools },
})

// pool decodes an IPPool and applies the defaults of libcalico-go clientv3/ippool.go,
// convertIpPoolFromStorage. Pools stored by Calico v2 have an "ipip" object instead of
// ipipMode, and "nat-outgoing"; they are converted as in backend/k8s/resources/ippool.go, ConvertFromK8s.
func (d *Decoder) pool(r *parse.Reader, p *blocks.Pool) bool {
	p.Automatic = true
	var old blocks.Encap
	hasCIDR, hasSize := false, false
	found := d.object(r, &p.Meta, metaHooks{label: func(key, value []byte) { // tigera/operator pkg/controller/ippool/pool_controller.go, hasOwner
		p.OfOperator = p.OfOperator || string(key) == blocks.ManagedBy && string(value) == blocks.TigeraOperator
	}}, r.Known(parse.Members{
		"cidr": func() {
			if hasCIDR = !r.Null(); hasCIDR {
				if written, ok := d.network(r); ok {
					if p.CIDR = written.Masked(); p.CIDR != written {
						p.Unmasked = written
					}
				}
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
				if s, ok := r.Bytes(); ok {
					p.Uses = append(p.Uses, blocks.Use(d.str(s)))
				}
			})
		},
		"assignmentMode": func() { p.Automatic = apiv3.AssignmentMode(r.String()) != apiv3.Manual },
		"ipip":           func() { old = oldIPIP(r) },
		"ipipMode":       (*string)(&p.IPIP), "vxlanMode": (*string)(&p.VXLAN),
		"nodeSelector": &p.NodeSelector, "namespaceSelector": &p.NamespaceSelector,
		"disabled": &p.Disabled, "natOutgoing": &p.NATOutgoing, "nat-outgoing": &p.NATOutgoing, "disableBGPExport": &p.DisableBGPExport,
	}), r.Known(parse.Members{"conditions": func() {
		d.conditions(r, func(kind, status, reason []byte, _ blocks.Time) { // Calico v3.32 and newer assign no addresses from such a pool
			if string(kind) == "Allocatable" && string(status) == "False" {
				p.NotAllocatable = cmp.Or(string(reason), "Unknown")
			}
		})
	}}))
	if r.Err() != nil {
		return false
	}
	if found && !hasCIDR {
		r.FaultAt("spec.cidr", blocks.FieldMissing)
	}
	if len(p.Uses) == 0 {
		p.Uses = []blocks.Use{blocks.UseWorkload, blocks.UseTunnel}
	}
	p.NodeSelector = cmp.Or(p.NodeSelector, "all()")
	p.IPIP = cmp.Or(old, p.IPIP, blocks.EncapNever)
	p.VXLAN = cmp.Or(p.VXLAN, blocks.EncapNever)
	if p.CIDR.IsValid() {
		if p.BlockSize == 0 {
			p.BlockSize, p.DefaultSize = defaultBlockSize(p.CIDR), true
		}
		if hasSize && (p.BlockSize < 1 || p.BlockSize > p.CIDR.Addr().BitLen()) {
			r.FaultAt("spec.blockSize", fmt.Sprintf("is %d, not the length of an %v prefix", p.BlockSize, p.Family()))
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

// oldIPIP decodes the encapsulation of a pool stored by Calico v2; "" for null.
func oldIPIP(r *parse.Reader) blocks.Encap {
	enabled, mode := false, ""
	if !r.Fields(parse.Members{"enabled": &enabled, "mode": &mode}) {
		return ""
	}
	switch {
	case !enabled:
		return blocks.EncapNever
	case mode == string(apiv3.CrossSubnet):
		return blocks.EncapCrossSubnet
	}
	return blocks.EncapAlways
}
