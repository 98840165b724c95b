package blocks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestPin: every UID and resourceVersion comes back unchanged, and pins are equal only if
// both strings are.
func TestPin(t *testing.T) {
	uids := []string{
		"", "6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f60", "6D5F8C7B-9D1C-4D5E-8F6A-1B2C3D4E5F60", "6d5f8c7b9d1c4d5e8f6a1b2c3d4e5f60",
		"{6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f6}", "00000000-0000-0000-0000-000000000000", "6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f6x",
		"urn:uuid:6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f60", "uid-node-1", "0123456789abcdef0123456789abcdef", "\x00",
	}
	versions := []string{"", "1", "123456789", "18446744073709551615", "18446744073709551616", "0", "007", "+1", "-1", " 1", "1_000", "v1", "1e3"}
	type key struct{ uid, version string }
	seen := map[blocks.Pin]key{}
	for _, u := range uids {
		for _, v := range versions {
			p := blocks.PinOf(u, v)
			if p.UID() != u || p.ResourceVersion() != v {
				t.Errorf("%q and %q came back as %q and %q", u, v, p.UID(), p.ResourceVersion())
			}
			if p != blocks.PinOf([]byte(u), []byte(v)) {
				t.Errorf("%q and %q are pinned in two ways", u, v)
			}
			if have, twice := seen[p]; twice {
				t.Errorf("%q has the pin of %q", key{u, v}, have)
			}
			seen[p] = key{u, v}
			for _, o := range uids {
				if p.SameUID(blocks.PinOf(o, "2")) != (u == o) {
					t.Errorf("%q and %q: the same UID", u, o)
				}
			}
		}
	}
	if blocks.PinOf("", "") != (blocks.Pin{}) {
		t.Error("nothing is pinned by something")
	}
}
