package decode

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

const goodBlock = `{
  "apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock",
  "metadata": {
    "name": "10-64-75-0-30", "uid": "u-1", "resourceVersion": "42",
    "creationTimestamp": "2025-11-20T10:00:00Z",
    "managedFields": [
      {"manager": "a", "time": "2025-11-20T10:05:00Z", "fieldsV1": {"f:spec": {".": {}}}},
      {"manager": "b", "time": "2025-11-20T10:09:30Z"},
      {"manager": "c"}],
    "annotations": {"projectcalico.org/metadata": "{}"}
  },
  "spec": {
    "cidr": "10.64.75.0/30", "affinity": "host:old-1", "affinityClaimTime": "2025-11-20T10:00:00Z",
    "allocations": [0, null, 1, 2], "unallocated": [1],
    "attributes": [
      {"handle_id": "k8s-pod-network.abc", "secondary": {"namespace": "shop", "node": "old-1", "pod": "cart-1",
        "timestamp": "2025-11-20 10:00:00.123456 +0000 UTC m=+0.104"}},
      {"handle_id": "ipip-tunnel-addr-old-1", "secondary": {"node": "old-1", "type": "ipipTunnelAddress"}},
      {"secondary": {"namespace": "vms", "node": "old-1", "pod": "virt-1", "vmi-name": "vm"},
        "alternateOwnerAttrs": {"pod": "virt-2", "namespace": "vms", "node": "n2", "vmi-name": "vm", "vmim-uid": "m"},
        "releasedAt": "2025-11-20T10:09:00Z"}],
    "sequenceNumber": 18446744073709551615,
    "sequenceNumberForAllocation": {"3": 12, "0": 1763632800123456789, "2": 11},
    "deleted": false, "strictAffinity": true, "somethingNewer": {"x": [1]}
  }
}`

func TestBlock(t *testing.T) {
	p := decodeOne(t, ipamBlocks, goodBlock)
	noGaps(t, p)
	sameBlock(t, blocks.Block{
		Meta: blocks.Meta{
			Name: "10-64-75-0-30", Pin: blocks.PinOf("u-1", "42"),
			Created: at("2025-11-20T10:00:00Z"), Written: at("2025-11-20T10:09:30Z"),
		},
		CIDR:     prefix("10.64.75.0/30"),
		Owner:    blocks.Owner{Kind: blocks.HostOwner, Name: "old-1"},
		Ordinals: []int32{0, blocks.Free, 1, 2}, Unallocated: []int32{1},
		Attributes: []blocks.Attributes{
			{Handle: "k8s-pod-network.abc", HasHandle: true, Namespace: "shop", Node: "old-1", Pod: "cart-1",
				Assigned: at("2025-11-20T10:00:00.123456Z")},
			{Handle: "ipip-tunnel-addr-old-1", HasHandle: true, Node: "old-1", Extra: &blocks.AttributesExtra{Type: blocks.TypeIPIP}},
			{Namespace: "vms", Node: "old-1", Pod: "virt-1", VM: true, Extra: &blocks.AttributesExtra{VMI: "vm", Released: at("2025-11-20T10:09:00Z"),
				Alternate: &blocks.Attributes{Namespace: "vms", Node: "n2", Pod: "virt-2", VM: true, Extra: &blocks.AttributesExtra{VMI: "vm"}}}},
		},
		Sequence:         math.MaxUint64,
		OrdinalSequences: []blocks.OrdinalSequence{{Ordinal: 0, Sequence: 1763632800123456789}, {Ordinal: 2, Sequence: 11}, {Ordinal: 3, Sequence: 12}},
		DeprecatedStrict: true,
		Claimed:          at("2025-11-20T10:00:00Z"),
	}, all[blocks.Block](p))
}

// sameBlock compares the only block with want, except for the digests, which TestDigest
// covers.
func sameBlock(t *testing.T, want blocks.Block, got []blocks.Block) {
	t.Helper()
	if d := cmp.Diff([]blocks.Block{want}, got, equal, cmpopts.IgnoreFields(blocks.Attributes{}, "Digest")); d != "" {
		t.Errorf("block (-want +got):\n%s", d)
	}
}

// objectNamed returns an object with a name and a spec.
func objectNamed(name, spec string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {%s}}`, name, spec)
}

// Contradictions within a block are kept: the audit evaluates them.
func TestBlockKeepsContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want blocks.Block
	}{
		"host bits are masked, as by net.ParseCIDR": {
			`"cidr": "10.64.75.9/26"`, blocks.Block{CIDR: prefix("10.64.75.0/26")}},
		"IPv6": {
			`"cidr": "fd00:10:0:0::40/122"`, blocks.Block{CIDR: prefix("fd00:10::40/122")}},
		"IPv4 mapped into IPv6": {
			`"cidr": "::ffff:10.64.75.0/122"`, blocks.Block{CIDR: prefix("10.64.75.0/26")}},
		"indexes beyond the attributes": {
			`"cidr": "10.0.0.0/30", "allocations": [7, null, 0], "attributes": []`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Ordinals: []int32{7, blocks.Free, 0}}},
		"indexes that no block can have are never free": {
			`"cidr": "10.0.0.0/30", "allocations": [-1, -5, 99999999999, 123456789012345678901234567890]`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Ordinals: []int32{math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32}}},
		"duplicate and foreign ordinals": {
			`"cidr": "10.0.0.0/30", "unallocated": [1, 1, 64, -2]`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Unallocated: []int32{1, 1, 64, -2}}},
		"no affinity, as null": {
			`"cidr": "10.0.0.0/30", "affinity": null`, blocks.Block{CIDR: prefix("10.0.0.0/30")}},
		"a LoadBalancer block": {
			`"cidr": "10.0.0.0/30", "affinity": "virtual:load-balancer"`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Owner: blocks.Owner{Kind: blocks.VirtualOwner, Name: "load-balancer"}}},
		"an affinity of no known form": {
			`"cidr": "10.0.0.0/30", "affinity": "old-1"`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Owner: blocks.Owner{Name: "old-1"}}},
		"soft-deleted": {
			`"cidr": "10.0.0.0/30", "deleted": true`, blocks.Block{CIDR: prefix("10.0.0.0/30"), SoftDeleted: true}},
		"a field that stands twice": {
			`"cidr": "10.0.0.0/30", "allocations": [0, 0], "allocations": [null]`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Ordinals: []int32{blocks.Free}}},
		"an empty handle is a handle": {
			`"cidr": "10.0.0.0/30", "attributes": [{"handle_id": ""}, {"handle_id": null}, null]`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Attributes: []blocks.Attributes{{HasHandle: true}, {}, {}}}},
		"times that are none are unknown": {
			`"cidr": "10.0.0.0/30", "affinityClaimTime": "yesterday", "attributes": [{"secondary": {"timestamp": "soon"}}]`,
			blocks.Block{CIDR: prefix("10.0.0.0/30"), Attributes: []blocks.Attributes{{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decodeOne(t, ipamBlocks, objectNamed("b", c.spec))
			noGaps(t, p)
			c.want.Name = "b"
			sameBlock(t, c.want, all[blocks.Block](p))
		})
	}
}

// A block that cannot be decoded becomes a gap with all that is readable.
func TestBlockGaps(t *testing.T) {
	owner := blocks.Owner{Kind: blocks.HostOwner, Name: "n1"}
	for name, c := range map[string]struct {
		object string
		want   blocks.Gap
	}{
		"garbage CIDR, read from the name": {
			objectNamed("10-64-75-0-26", `"cidr": "10.64.75.0", "affinity": "host:n1"`),
			blocks.Gap{Name: "10-64-75-0-26", Field: "spec.cidr", Reason: `"10.64.75.0" is not a CIDR`,
				Prefix: prefix("10.64.75.0/26"), Owner: owner, OwnerKnown: true}},
		"garbage IPv6 CIDR, read from the name": {
			objectNamed("fd00-10--40-122", `"cidr": "x"`),
			blocks.Gap{Name: "fd00-10--40-122", Field: "spec.cidr", Reason: `"x" is not a CIDR`,
				Prefix: prefix("fd00:10::40/122"), OwnerKnown: true}},
		"garbage CIDR and name": {
			objectNamed("what", `"cidr": ""`),
			blocks.Gap{Name: "what", Field: "spec.cidr", Reason: "is empty, not a CIDR", OwnerKnown: true}},
		"no CIDR": {
			objectNamed("10-64-75-0-26", `"affinity": "host:n1"`),
			blocks.Gap{Name: "10-64-75-0-26", Field: "spec.cidr", Reason: "is missing",
				Prefix: prefix("10.64.75.0/26"), Owner: owner, OwnerKnown: true}},
		"affinity of a wrong type": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "affinity": {"host": "n1"}`),
			blocks.Gap{Name: "b", Field: "spec.affinity", Reason: "is an object, not a string", Prefix: prefix("10.0.0.0/26")}},
		"allocations of a wrong type": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "affinity": "host:n1", "allocations": {"0": 1}`),
			blocks.Gap{Name: "b", Field: "spec.allocations", Reason: "is an object, not a list",
				Prefix: prefix("10.0.0.0/26"), Owner: owner, OwnerKnown: true}},
		"an allocation of a wrong type": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "allocations": [0, null, "1"]`),
			blocks.Gap{Name: "b", Field: "spec.allocations[2]", Reason: "is a string, not an integer",
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"a fraction": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "allocations": [0.5]`),
			blocks.Gap{Name: "b", Field: "spec.allocations[0]", Reason: "is 0.5, not an integer",
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"too many allocations": {
			objectNamed("b", `"cidr": "10.0.0.0/8", "allocations": [`+repeat("null", maxOrdinals+2, ",")+`]`),
			blocks.Gap{Name: "b", Field: "spec.allocations[65536]", Reason: "has more than 65536 entries",
				Prefix: prefix("10.0.0.0/8"), OwnerKnown: true}},
		"an attribute of a wrong type": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "attributes": [{}, {"secondary": {"pod": 5}}]`),
			blocks.Gap{Name: "b", Field: "spec.attributes[1].secondary.pod", Reason: "is a number, not a string",
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"a sequence number by no ordinal": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "sequenceNumberForAllocation": {"first": 1}`),
			blocks.Gap{Name: "b", Field: "spec.sequenceNumberForAllocation.first", Reason: `is keyed by "first", not by an ordinal`,
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"a negative sequence number": {
			objectNamed("b", `"cidr": "10.0.0.0/26", "sequenceNumber": -1`),
			blocks.Gap{Name: "b", Field: "spec.sequenceNumber", Reason: "is -1, not an integer from 0 to 2^64-1",
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"spec of a wrong type": {
			`{"metadata": {"name": "10-0-0-0-26"}, "spec": []}`,
			blocks.Gap{Name: "10-0-0-0-26", Field: "spec", Reason: "is a list, not an object",
				Prefix: prefix("10.0.0.0/26")}},
		"no name": {
			`{"spec": {"cidr": "10.0.0.0/26"}}`,
			blocks.Gap{Name: "(no name)", Field: "metadata.name", Reason: "is missing",
				Prefix: prefix("10.0.0.0/26"), OwnerKnown: true}},
		"no object": {
			`[]`, blocks.Gap{Name: "(no name)", Reason: "is a list, not an object"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decodeOne(t, ipamBlocks, c.object)
			if len(all[blocks.Block](p)) > 0 {
				t.Errorf("kept as %v", all[blocks.Block](p))
			}
			c.want.Resource = blocks.Blocks
			diff(t, "gap", c.want, oneGap(t, p))
		})
	}
}

func TestGoTime(t *testing.T) {
	now := time.Now()
	for text, want := range map[string]blocks.Time{
		now.String():                               blocks.TimeOf(now),
		now.UTC().String():                         blocks.TimeOf(now),
		"2025-11-20 10:00:00 +0000 UTC":            at("2025-11-20T10:00:00Z"),
		"2025-11-20 10:00:00.5 +0100 CET m=+12.25": at("2025-11-20T09:00:00.5Z"),
		"2025-11-20 10:00:00 -0330 -0330":          at("2025-11-20T13:30:00Z"),
		"2025-11-20T10:00:00Z":                     at("2025-11-20T10:00:00Z"),
		"":                                         0,
		"20 November":                              0,
	} {
		if got := blocks.TimeOf(blocks.ParseGoTime(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// FuzzBlock: for any bytes, a decoder returns a usable block or a gap that names it.
func FuzzBlock(f *testing.F) {
	f.Add([]byte(goodBlock))
	for _, seed := range []string{
		objectNamed("10-0-0-0-26", `"cidr": "x"`), objectNamed("b", `"cidr": "10.0.0.0/26", "allocations": [-1, 1e9, null]`),
		objectNamed("b", `"cidr": "0.0.0.0/0", "allocations": [0]`), `{"metadata": null, "spec": {"cidr": "::/0"}}`, `null`, `[1`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		p := NewObjects(ipamBlocks)
		d := &Decoder{Out: p, Strings: &SharedStrings{}}
		r := parse.New(object)
		ipamBlocks.JSON(d, r)
		if r.Err() != nil {
			if len(all[blocks.Block](p))+len(p.Gaps) > 0 {
				t.Fatal("something was made of broken JSON")
			}
			return
		}
		if len(all[blocks.Block](p))+len(p.Gaps) != 1 {
			t.Fatalf("%d blocks, gaps %v", len(all[blocks.Block](p)), p.Gaps)
		}
		for _, g := range p.Gaps {
			if g.Whole() || g.Reason == "" {
				t.Fatalf("gap %+v names no object or no reason", g)
			}
		}
		for i := range all[blocks.Block](p) {
			b := &all[blocks.Block](p)[i]
			if !b.CIDR.IsValid() || b.CIDR != b.CIDR.Masked() || b.CIDR.Addr().Is4In6() {
				t.Fatalf("CIDR %v", b.CIDR)
			}
			for o, index := range b.Ordinals {
				if index < blocks.Free {
					t.Fatalf("ordinal %d has index %d", o, index)
				}
				b.At(o)
				b.Address(o)
			}
		}
	})
}

// TestWrittenByUs: an object counts as written by this program if its newest write is, and
// no other manager wrote in the same second.
func TestWrittenByUs(t *testing.T) {
	for entries, want := range map[string]bool{
		``: false,
		`{"manager":"calico-audit","time":"2026-01-01T00:00:09Z"}`:                                                  true,
		`{"time":"2026-01-01T00:00:09Z","manager":"calico-audit"},{"manager":"node","time":"2026-01-01T00:00:08Z"}`: true,
		`{"manager":"node","time":"2026-01-01T00:00:08Z"},{"manager":"calico-audit","time":"2026-01-01T00:00:09Z"}`: true,
		`{"manager":"calico-audit","time":"2026-01-01T00:00:08Z"},{"manager":"node","time":"2026-01-01T00:00:09Z"}`: false,
		`{"manager":"calico-audit","time":"2026-01-01T00:00:09Z"},{"manager":"node","time":"2026-01-01T00:00:09Z"}`: false,
		`{"manager":"node","time":"2026-01-01T00:00:09Z"},{"manager":"calico-audit","time":"2026-01-01T00:00:09Z"}`: false,
		`{"manager":"calico-audit"}`:                                 false,
		`{"manager":"calico-audit-2","time":"2026-01-01T00:00:09Z"}`: false,
	} {
		object := `{"metadata":{"name":"h","managedFields":[` + entries + `]},"spec":{"handleID":"h","block":{}}}`
		p := decodeOne(t, handles, object)
		if got := all[blocks.Handle](p)[0].ByUs; got != want {
			t.Errorf("%s: by us %v, want %v", entries, got, want)
		}
		for _, replaced := range []*alias.Aliases{nil, alias.New()} {
			kept := decodeOne(t, handles, string(keep.Append(nil, parse.New([]byte(object)), handles.keeps, replaced)))
			if got := all[blocks.Handle](kept)[0].ByUs; got != want {
				t.Errorf("%s: in a snapshot (names replaced: %v) by us %v, want %v", entries, replaced != nil, got, want)
			}
		}
	}
}
