package decode

import (
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// attributesOf decodes one entry of a block's attributes.
func attributesOf(t *testing.T, text string) blocks.Attributes {
	t.Helper()
	p := decodeOne(t, ipamBlocks, objectNamed("b", `"cidr": "10.0.0.0/30", "attributes": [`+text+`]`))
	noGaps(t, p)
	return all[blocks.Block](p)[0].Attributes[0]
}

// A stopped virtual machine keeps only its handle, a migration has a second owner, and
// either map marks the allocation as a virtual machine's.
func TestOwners(t *testing.T) {
	const handle = `"handle_id": "k8s-pod-network.vmi.shop.db"`
	for name, c := range map[string]struct {
		text string
		want blocks.Attributes
	}{
		"stopped":                  {`{` + handle + `}`, blocks.Attributes{}},
		"stopped, with empty maps": {`{` + handle + `, "secondary": {}, "alternateOwnerAttrs": {}}`, blocks.Attributes{}},
		"null maps":                {`{` + handle + `, "secondary": null, "alternateOwnerAttrs": null}`, blocks.Attributes{}},
		"running": {`{` + handle + `, "secondary": {"pod": "virt-launcher-a", "namespace": "shop", "node": "n1", "vmi-name": "db", "vmi-uid": "u", "vm-uid": "v"}}`,
			blocks.Attributes{Pod: "virt-launcher-a", Namespace: "shop", Node: "n1", VM: true, Extra: &blocks.AttributesExtra{VMI: "db"}}},
		"migrating": {`{` + handle + `, "secondary": {"pod": "virt-launcher-a", "namespace": "shop", "node": "n1", "vmi-name": "db"},
			"alternateOwnerAttrs": {"pod": "virt-launcher-b", "namespace": "shop", "node": "n2", "vmi-name": "db", "vmim-uid": "m", "type": "x"}}`,
			blocks.Attributes{Pod: "virt-launcher-a", Namespace: "shop", Node: "n1", VM: true, Extra: &blocks.AttributesExtra{VMI: "db",
				Alternate: &blocks.Attributes{Pod: "virt-launcher-b", Namespace: "shop", Node: "n2", VM: true, Extra: &blocks.AttributesExtra{VMI: "db"}}}}},
		"target alone": {`{` + handle + `, "alternateOwnerAttrs": {"pod": "virt-launcher-b", "namespace": "shop", "vmi-name": "db"}}`,
			blocks.Attributes{VM: true, Extra: &blocks.AttributesExtra{VMI: "db",
				Alternate: &blocks.Attributes{Pod: "virt-launcher-b", Namespace: "shop", VM: true, Extra: &blocks.AttributesExtra{VMI: "db"}}}}},
		"a migration's UID alone": {`{` + handle + `, "secondary": {"vmim-uid": "m"}}`, blocks.Attributes{VM: true}},
		"no VM's":                 {`{` + handle + `, "alternateOwnerAttrs": {"pod": "p"}}`, blocks.Attributes{Extra: &blocks.AttributesExtra{Alternate: &blocks.Attributes{Pod: "p"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := attributesOf(t, c.text)
			if empty := c.want == (blocks.Attributes{}); (got.Digest == 0) != empty {
				t.Errorf("digest %d", got.Digest)
			}
			got.Digest = 0
			c.want.Handle, c.want.HasHandle = "k8s-pod-network.vmi.shop.db", true
			diff(t, "attributes", c.want, got)
		})
	}
	p := decodeOne(t, ipamBlocks, objectNamed("b", `"cidr": "10.0.0.0/30", "attributes": [{"alternateOwnerAttrs": []}]`))
	if g := oneGap(t, p); g.Field != "spec.attributes[0].alternateOwnerAttrs" {
		t.Errorf("gap %v", g)
	}
}

// TestDigest: the digest depends only on the entries, not on their order, and changes with
// any key, value, map or number of entries, and with the border between key and value. It
// must stay the same between releases, because plans store it.
func TestDigest(t *testing.T) {
	digest := func(text string) uint64 { return attributesOf(t, text).Digest }
	if a, b := digest(`{"secondary": {"pod": "p", "node": "n"}, "alternateOwnerAttrs": {"x": "1", "y": "2"}}`),
		digest(`{"alternateOwnerAttrs": {"y": "2", "x": "1"}, "handle_id": "h", "secondary": {"node": "n", "pod": "p"}}`); a != b {
		t.Errorf("%x in one order, %x in another", a, b)
	}
	if got, want := digest(`{"secondary": {"node": "n1", "pod": "cart-1"}}`), uint64(0xf42247c8a944efb0); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
	seen := map[uint64]string{}
	for _, text := range []string{
		`{}`, `{"secondary": {"": ""}}`, `{"alternateOwnerAttrs": {"": ""}}`, `{"secondary": {"a": "b"}}`, `{"secondary": {"b": "a"}}`,
		`{"secondary": {"a": "c"}}`, `{"secondary": {"a": "b", "c": "d"}}`, `{"secondary": {"a": "d", "c": "b"}}`,
		`{"secondary": {"ab": ""}}`, `{"secondary": {"": "ab"}}`, `{"alternateOwnerAttrs": {"a": "b"}}`,
		`{"secondary": {"a": "b"}, "alternateOwnerAttrs": {"c": "d"}}`, `{"secondary": {"c": "d"}, "alternateOwnerAttrs": {"a": "b"}}`,
		`{"secondary": {"a": "b"}, "alternateOwnerAttrs": {"a": "b"}}`,
	} {
		d := digest(text)
		if other, twice := seen[d]; twice {
			t.Errorf("%s and %s have the digest %x", text, other, d)
		}
		seen[d] = text
	}
}
