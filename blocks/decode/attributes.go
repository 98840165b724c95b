package decode

import (
	"cmp"

	"github.com/cespare/xxhash/v2"

	"github.com/calico-audit/calico-audit/blocks"
)

// attributesMask is what is kept of an entry of a block's attributes.
var attributesMask = object("", 0,
	value("handle_id", 0, classHandle), value("releasedAt", 0, classTime),
	&fieldMask{key: "secondary", schema: schemaMap, classes: ownerAttributes},
	&fieldMask{key: "alternateOwnerAttrs", schema: schemaMap, classes: ownerAttributes})

var ownerAttributes = map[string]class{
	"pod": classPod, "namespace": classNamespace, "node": classNode, "type": classWord, "service": classService,
	"timestamp": classTime, "vmi-name": classVM, "vmi-uid": classUID, "vm-uid": classUID, "vmim-uid": classUID,
}

// attributes reads what an allocation is for: a handle and two maps of texts. The
// map "secondary" is of the active owner (ActiveOwnerAttrs in Calico v3.32), and
// "alternateOwnerAttrs" of another that may take the address over, the target of a
// live migration (libcalico-go lib/apis/internalapi/ipam_block.go). Keys are those
// of libcalico-go backend/model/block.go.
func (d *Decoder) attributes(r *JSONReader) blocks.Attributes {
	var a blocks.Attributes
	var digest digest
	r.Object(func(key []byte) {
		switch string(key) {
		case "handle_id":
			var s []byte
			s, a.HasHandle = r.str()
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

// ownerAttribute reads an attribute that either owner may have.
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

// The maps of attributes, as they are told apart in a digest.
const (
	activeOwner    = 0x9e3779b97f4a7c15
	alternateOwner = 0xc2b2ae3d27d4eb4f
)

// digest is [blocks.Attributes.Digest] of what was added, in any order: a sum of
// one hash for each entry, of its map, key and value. It is the same in every run of
// the program, for plans are carried out by another than the one that made them.
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
		return 1 // 0 means that there is no entry
	}
	return d.sum
}

// mixed spreads every bit over all others (the finalizer of SplitMix64).
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
