package decode

import (
	"cmp"

	"github.com/cespare/xxhash/v2"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// attributesMask selects the saved fields of a block's attributes.
var attributesMask = parse.Object("", 0,
	parse.Value("handle_id", 0, keep.Handle), parse.Value("releasedAt", 0, keep.Time),
	&parse.Mask{Key: "secondary", Schema: parse.SchemaMap, Classes: ownerAttributes},
	&parse.Mask{Key: "alternateOwnerAttrs", Schema: parse.SchemaMap, Classes: ownerAttributes})

var ownerAttributes = map[string]keep.Class{
	"pod": keep.Pod, "namespace": keep.Namespace, "node": keep.Node, "type": keep.Word, "service": keep.Service,
	"timestamp": keep.Time, "vmi-name": keep.VM, "vmi-uid": keep.UID, "vm-uid": keep.UID, "vmim-uid": keep.UID,
}

// attributes decodes the attributes of an allocation: a handle and two maps of strings.
// "secondary" describes the active owner (ActiveOwnerAttrs in Calico v3.32).
// "alternateOwnerAttrs" describes the second owner that may take over the address, the
// target of a live migration (libcalico-go lib/apis/internalapi/ipam_block.go). The keys
// are those of libcalico-go backend/model/block.go.
func (d *Decoder) attributes(r *parse.Reader) blocks.Attributes {
	var a blocks.Attributes
	var digest digest
	r.Object(func(key []byte) {
		switch string(key) {
		case "handle_id":
			var s []byte
			s, a.HasHandle = r.Bytes()
			a.Handle = string(s)
		case "releasedAt":
			a.Extend().Released = d.seenTime(r)
		case "secondary":
			stringMap(r, func(key, value []byte) {
				digest.add(activeOwner, key, value)
				d.ownerAttribute(&a, key, value)
				switch string(key) {
				case "type":
					a.Extend().Type = d.str(value)
				case "service":
					a.Extend().Service = d.str(value)
				case "timestamp":
					a.Assigned = d.saw(blocks.ParseGoTime(string(value)))
				}
			})
		case "alternateOwnerAttrs":
			stringMap(r, func(key, value []byte) {
				digest.add(alternateOwner, key, value)
				x := a.Extend()
				if x.Alternate == nil {
					x.Alternate = &blocks.Attributes{}
				}
				d.ownerAttribute(x.Alternate, key, value)
			})
		}
	})
	if alt := a.Extras().Alternate; alt != nil && alt.VM {
		a.VM, a.Extra.VMI = true, cmp.Or(a.Extra.VMI, alt.Extras().VMI)
	}
	a.Digest = digest.value()
	return a
}

// ownerAttribute decodes an attribute that either owner may have.
func (d *Decoder) ownerAttribute(a *blocks.Attributes, key, value []byte) {
	switch string(key) {
	case "pod":
		a.Pod = string(value)
	case "namespace":
		a.Namespace = d.str(value)
	case "node":
		a.Node = d.str(value)
	case "vmi-name":
		a.VM, a.Extend().VMI = true, d.str(value)
	case "vmi-uid", "vm-uid", "vmim-uid":
		a.VM = true
	}
}

// Seeds that separate the two attribute maps in a digest.
const (
	activeOwner    = 0x9e3779b97f4a7c15
	alternateOwner = 0xc2b2ae3d27d4eb4f
)

// digest computes [blocks.Attributes.Digest]: the sum of one hash per entry, over its map, key and
// value, in any order. It must not change between runs, because one run makes a plan and a later
// one applies it.
type digest struct {
	sum     uint64
	entries int
}

func (d *digest) add(of uint64, key, value []byte) {
	d.sum += mixed(mixed(of^xxhash.Sum64(key)) ^ xxhash.Sum64(value))
	d.entries++
}

func (d *digest) value() uint64 {
	if d.entries > 0 && d.sum == 0 {
		return 1 // 0 means no entries
	}
	return d.sum
}

// mixed spreads every bit over all others (the finalizer of SplitMix64).
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
