package decode

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var ipamBlocks = describe(Kind{
	Resource: blocks.Blocks, Names: []string{libapiv3.KindIPAMBlock}, Absent: always("no IPAMBlock in the files"),
	always: []string{"allocations"}, Record: true,
	keeps: keep.CalicoObject(keep.CIDRName,
		parse.Value("cidr", 0, keep.Addresses), parse.Value("affinity", 0, keep.Owner), parse.Value("affinityClaimTime", 0, keep.Time),
		parse.List("allocations", 0, parse.Value("", 0, keep.Number)), parse.List("unallocated", 0, parse.Value("", 0, keep.Number)),
		parse.List("attributes", 0, attributesMask),
		parse.Value("sequenceNumber", 0, keep.Number),
		&parse.Mask{Key: "sequenceNumberForAllocation", Schema: parse.SchemaMap, Class: keep.ByOrdinal},
		parse.Value("deleted", 0, keep.Number), parse.Value("strictAffinity", 0, keep.Number)),
}, descriptor[blocks.Block]{
	json: (*Decoder).block,
	in:   func(s *blocks.Snapshot) *[]blocks.Block { return &s.Blocks },
})

// maxOrdinals is the most addresses that a block may record. Calico's largest block (an
// IPv4 /20, an IPv6 /116) has 4,096.
const maxOrdinals = 65536

// block decodes an IPAMBlock. The fields are those of libcalico-go
// lib/apis/v3/ipam_block.go, which both API groups share, plus affinityClaimTime (v3.32)
// and releasedAt (v3.34).
//
// Contradictions, such as an allocation without attributes, are kept for the audit. Only
// values that do not fit into a [blocks.Block] become gaps: an invalid CIDR, a wrong type,
// too many ordinals.
func (d *Decoder) block(r *parse.Reader, b *blocks.Block) bool {
	var hasCIDR, cidrOK, hasAffinity, affinityOK, hasSequence, hasFree bool
	found := d.object(r, &b.Meta, metaHooks{}, func(key []byte) {
		switch string(key) {
		case "sequenceNumber":
			hasSequence = true
			b.Sequence, _ = r.Uint()
		case "cidr":
			if hasCIDR = !r.Null(); hasCIDR {
				b.CIDR, cidrOK = d.cidr(r)
			}
		case "affinity":
			hasAffinity = true
			b.Owner, affinityOK = d.blockOwner(r)
		default:
			hasFree = hasFree || string(key) == "unallocated"
			d.blockField(r, b, key)
		}
	}, nil)
	if r.Err() != nil {
		return false
	}
	if found && !hasCIDR {
		r.FaultAt("spec.cidr", blocks.FieldMissing)
	}
	if d.Dump && !hasSequence && len(b.OrdinalSequences) > 0 {
		r.FaultAt("spec.sequenceNumber", blocks.FieldMissing)
	}
	if d.Dump && !hasFree && slices.Contains(b.Ordinals, blocks.Free) {
		r.FaultAt("spec.unallocated", blocks.FieldMissing)
	}
	checkName(r, &b.Meta)
	if len(r.Faults) == 0 {
		return true
	}
	g := d.gap(&b.Meta, r.Faults[0])
	if g.Prefix = b.CIDR; !cidrOK {
		g.Prefix = blocks.PrefixOfName(b.Name)
	}
	// The owner is known for an absent affinity, too: the block has no owner.
	if g.OwnerKnown = d.hasSpec && (affinityOK || !hasAffinity); g.OwnerKnown {
		g.Owner = b.Owner
	}
	return false
}

// blockOwner decodes a block's affinity. It is known if it is a string or null.
func (d *Decoder) blockOwner(r *parse.Reader) (owner blocks.Owner, known bool) {
	if r.Null() {
		return blocks.Owner{}, true
	}
	s, ok := r.Bytes()
	if !ok {
		return blocks.Owner{}, false
	}
	return d.owner(s), true
}

// owner is blocks.ParseOwner with shared strings.
func (d *Decoder) owner(affinity []byte) blocks.Owner {
	o := blocks.ParseOwner(d.str(affinity))
	if o.Kind == blocks.HostOwner || o.Kind == blocks.VirtualOwner {
		o.Name = d.str([]byte(o.Name))
	}
	return o
}

func (d *Decoder) blockField(r *parse.Reader, b *blocks.Block, key []byte) {
	switch string(key) {
	case "affinityClaimTime":
		b.Claimed = d.seenTime(r)
	case "allocations":
		b.Ordinals = ordinals(r, b.Ordinals[:0])
	case "unallocated":
		b.Unallocated = b.Unallocated[:0]
		perOrdinal(r, func() {
			if n, ok := r.Int32(); ok {
				b.Unallocated = append(b.Unallocated, n)
			}
		})
	case "attributes":
		// Size the slice by the allocations, which API servers write before the attributes.
		if b.Attributes = nil; len(b.Ordinals) > 0 {
			b.Attributes = make([]blocks.Attributes, 0, min(int(slices.Max(b.Ordinals))+1, len(b.Ordinals)))
		}
		perOrdinal(r, func() { b.Attributes = append(b.Attributes, d.attributes(r)) })
		b.Attributes = slices.Clip(b.Attributes)
	case "sequenceNumberForAllocation":
		b.OrdinalSequences = ordinalSequences(r)
	case "deleted":
		b.SoftDeleted, _ = r.Boolean()
	case "strictAffinity":
		b.DeprecatedStrict, _ = r.Boolean()
	}
}

// perOrdinal reads an array with at most an element for each address of a block.
func perOrdinal(r *parse.Reader, element func()) {
	r.Array(func(i int) {
		switch {
		case i < maxOrdinals:
			element()
		case i == maxOrdinals:
			r.Fault("has more than " + strconv.Itoa(maxOrdinals) + " entries")
		}
	})
}

// ordinals decodes a block's allocations: for each address an index into the attributes, or null.
// Negative indices, which would look like free addresses, and indices too large for an int32 become
// the largest int32, which is always invalid.
func ordinals(r *parse.Reader, out []int32) []int32 {
	if out == nil {
		out = make([]int32, 0, 64)
	}
	perOrdinal(r, func() {
		if r.Null() {
			out = append(out, blocks.Free)
		} else if n, ok := r.Int32(); ok {
			if n < 0 {
				n = math.MaxInt32
			}
			out = append(out, n)
		}
	})
	return slices.Clip(out)
}

// ordinalSequences decodes sequence numbers by ordinal. The ordinals are strings because
// they are keys of a JSON object.
func ordinalSequences(r *parse.Reader) []blocks.OrdinalSequence {
	var out []blocks.OrdinalSequence
	r.Object(func(key []byte) {
		ordinal, err := strconv.ParseInt(string(key), 10, 32)
		if err != nil {
			r.Fault("is keyed by " + strconv.Quote(parse.Clip(key)) + ", not by an ordinal")
			return
		}
		if n, ok := r.Uint(); ok && len(out) < maxOrdinals {
			out = append(out, blocks.OrdinalSequence{Ordinal: int32(ordinal), Sequence: n})
		}
	})
	slices.SortStableFunc(out, func(a, b blocks.OrdinalSequence) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return out
}
