package decode

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// versionWhereabouts is the API group and version of Whereabouts' kinds.
const versionWhereabouts = "whereabouts.cni.cncf.io/v1alpha1"

var whereaboutsPools = describe(Kind{
	Resource: blocks.WhereaboutsPools, Names: []string{"IPPool"}, Foreign: versionWhereabouts, Optional: true, Namespaced: true,
	Absent: besideWhereabouts("the files hold objects of Whereabouts but none of its IPPools"),
	keeps: whereaboutsObject(keep.RangeName, parse.Value("range", 0, keep.Addresses), parse.Entries("allocations", keep.ByOrdinal,
		parse.Object("", 0, parse.Value("id", 0, keep.Sandbox), parse.Value("podref", 0, keep.PodRef), parse.Value("ifname", 0, keep.Word)))),
}, descriptor[blocks.WhereaboutsPool]{
	json: (*Decoder).whereaboutsPool,
	in:   func(s *blocks.Snapshot) *[]blocks.WhereaboutsPool { return &s.WhereaboutsPools },
})

var whereaboutsReservations = describe(Kind{
	Resource: blocks.WhereaboutsReservations, Names: []string{"OverlappingRangeIPReservation"}, Foreign: versionWhereabouts, Optional: true, Namespaced: true,
	Absent: besideWhereabouts("the files hold objects of Whereabouts but no OverlappingRangeIPReservation"),
	keeps:  whereaboutsObject(keep.AddressName, parse.Value("containerid", 0, keep.Sandbox), parse.Value("podref", 0, keep.PodRef), parse.Value("ifname", 0, keep.Word)),
}, descriptor[blocks.WhereaboutsReservation]{
	json: (*Decoder).whereaboutsReservation,
	in:   func(s *blocks.Snapshot) *[]blocks.WhereaboutsReservation { return &s.WhereaboutsReservations },
})

var nodeSlicePools = describe(Kind{
	Resource: blocks.NodeSlicePools, Names: []string{"NodeSlicePool"}, Foreign: versionWhereabouts, Optional: true, Namespaced: true,
	Absent: func(s *blocks.Snapshot) string {
		for i := range s.NetworkAttachments {
			if n := &s.NetworkAttachments[i]; n.Sliced {
				return fmt.Sprintf("the files hold no NodeSlicePool, but network attachment %s gives slices of its range to nodes", n.Key())
			}
		}
		return ""
	},
	keeps: parse.Object("", 0, keep.Meta(keep.Network, true), parse.Object("status", 0,
		parse.List("allocations", 0, parse.Object("", 0, parse.Value("nodeName", 0, keep.Node), parse.Value("sliceRange", 0, keep.Addresses))))),
}, descriptor[blocks.NodeSlicePool]{
	json: (*Decoder).nodeSlicePool,
	in:   func(s *blocks.Snapshot) *[]blocks.NodeSlicePool { return &s.NodeSlicePools },
})

// besideWhereabouts is [Kind.Absent] for kinds that verdicts about Whereabouts need.
func besideWhereabouts(reason string) func(*blocks.Snapshot) string {
	return func(s *blocks.Snapshot) string {
		if len(s.WhereaboutsPools)+len(s.WhereaboutsReservations)+len(s.NodeSlicePools) == 0 {
			return ""
		}
		return reason
	}
}

// whereaboutsObject returns the mask of a Whereabouts object. spec lists the fields that
// the decoder reads.
func whereaboutsObject(name keep.Class, spec ...*parse.Mask) *parse.Mask {
	s := parse.Object("spec", 0, spec...)
	s.Whole = true
	return parse.Object("", 0, keep.Meta(name, true), s)
}

// whereaboutsPool decodes an IPPool of Whereabouts. An invalid allocation is omitted, with
// a gap of its own. Whereabouts omits it, too, and may assign its address again
// (pkg/storage/kubernetes/ipam.go, toIPReservationList).
func (d *Decoder) whereaboutsPool(r *parse.Reader, p *blocks.WhereaboutsPool) bool {
	type entry struct {
		blocks.WhereaboutsOwner
		key string
	}
	var entries []entry
	wrote := func(manager []byte, at blocks.Time) {
		if string(manager) != blocks.FieldManager {
			p.Assigned = p.Assigned.Later(at)
		}
	}
	d.object(r, &p.Meta, metaHooks{wrote: wrote}, func(key []byte) {
		switch string(key) {
		case "range":
			s, ok := r.Bytes()
			if !ok {
				return
			}
			if p.Range, ok = blocks.ParseNetwork(string(s)); !ok {
				r.Fault(parse.NotA("CIDR", s))
			}
			p.RangeText = string(s)
		case "allocations":
			r.Object(func(key []byte) {
				e := entry{key: string(key)}
				if r.Object(func(key []byte) { d.whereaboutsOwner(r, key, "id", &e.WhereaboutsOwner) }) {
					entries = append(entries, e)
				}
			})
		}
	}, nil)
	p.Namespace = d.inNamespace
	if r.Err() == nil && p.RangeText == "" && len(r.Faults) == 0 {
		r.FaultAt("spec.range", blocks.FieldMissing)
	}
	for _, e := range entries {
		a, ok := atOffset(p.Range.Addr(), e.key)
		if ok = ok && p.Range.Masked().Contains(a); !ok {
			if p.Range.IsValid() {
				r.FaultAt("spec.allocations."+e.key, "is not the offset of an address in the range")
			}
			continue
		}
		p.Allocations = append(p.Allocations, blocks.WhereaboutsAllocation{Addr: a, WhereaboutsOwner: e.WhereaboutsOwner})
	}
	slices.SortStableFunc(p.Allocations, func(a, b blocks.WhereaboutsAllocation) int { return a.Addr.Compare(b.Addr) })
	return d.whole(r, &p.Meta, "spec.allocations")
}

// atOffset returns the address at an offset from first; the offset is a decimal number of
// up to 63 bits (pkg/iphelpers, IPAddOffset). It returns false beyond the address space.
func atOffset(first netip.Addr, offset string) (netip.Addr, bool) {
	n, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || n < 0 || !first.IsValid() {
		return netip.Addr{}, false
	}
	sum := new(big.Int).SetBytes(first.AsSlice())
	sum.Add(sum, big.NewInt(n))
	if sum.BitLen() > first.BitLen() {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(sum.FillBytes(make([]byte, first.BitLen()/8)))
}

// whereaboutsOwner decodes a member of a Whereabouts owner. sandbox is the name of the
// member with the sandbox ID.
func (d *Decoder) whereaboutsOwner(r *parse.Reader, key []byte, sandbox string, o *blocks.WhereaboutsOwner) {
	switch string(key) {
	case sandbox:
		s, _ := r.Bytes()
		o.ContainerID = string(s)
	case "ifname":
		o.Interface = d.text(r)
	case "podref":
		s, _ := r.Bytes()
		namespace, name, ok := strings.Cut(string(s), "/")
		if ok && namespace != "" && name != "" && !strings.Contains(name, "/") {
			o.Pod = blocks.Key{Namespace: d.str([]byte(namespace)), Name: name}
		}
	}
}

// whereaboutsReservation decodes an OverlappingRangeIPReservation.
func (d *Decoder) whereaboutsReservation(r *parse.Reader, v *blocks.WhereaboutsReservation) bool {
	d.object(r, &v.Meta, metaHooks{}, func(key []byte) { d.whereaboutsOwner(r, key, "containerid", &v.WhereaboutsOwner) }, nil)
	v.Namespace = d.inNamespace
	return d.whole(r, &v.Meta, "")
}

// nodeSlicePool decodes a NodeSlicePool.
func (d *Decoder) nodeSlicePool(r *parse.Reader, p *blocks.NodeSlicePool) bool {
	d.object(r, &p.Meta, metaHooks{}, nil, r.Known(parse.Members{"allocations": func() {
		r.Array(func(int) {
			var s blocks.NodeSlice
			r.Fields(parse.Members{"nodeName": &s.Node, "sliceRange": func() { s.Range, _ = d.cidr(r) }})
			if s.Range.IsValid() {
				p.Slices = append(p.Slices, s)
			}
		})
	}}))
	p.Namespace = d.inNamespace
	return d.whole(r, &p.Meta, "status.allocations")
}
