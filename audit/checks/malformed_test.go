package checks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// malformed are objects that Calico would not write: blocks far larger than the pool or its block
// size, pools of the whole address space, and blocks that record more or fewer addresses than
// they have.
const malformed = `
pool six fd00::/48 size=122
pool one ::/0 size=128
pool small fd01::/126 size=122
pool four 0.0.0.0/0 size=32
pool pods 10.0.0.0/26
pool all 128.0.0.0/1 size=20
node n1 tunnel=vxlan6@fd00::1:0:0:5
node n2
block fd00::/64 n1 records=64
block fd00::/122 n1
block fd00:0:0:1::/65 n2 records=64
block fc00::/7 n2 records=64
block fd01::/120 gone records=300
block 10.0.0.0/26 n1 records=5000
use 10.0.0.1 shop/a n1
block 10.0.0.32/27 n2 records=9
block 11.0.0.0/8 n2 records=64
block 128.0.0.0/2 - records=64
affinity fd00::/64 n2
affinity ::/0 n2
affinity 0.0.0.0/0 n2
reserve fd00::/49
reserve ::/1
reserve 11.0.0.0/9
pod shop/b n2 10.0.0.40,fd00:0:0:1::5
handle beyond 10.0.0.0/26=99999999
`

// TestMalformed: with malformed objects, no loop walks their huge ranges, no count is negative, and a
// pool's slots still add up.
func TestMalformed(t *testing.T) {
	snap, err := statedsl.Parse(malformed)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	r := audit.Run(st, checks.All)
	rep := audit.NewReport(st, r)
	audit.NewUsage(st, r)
	none := blocks.Count{}
	for _, p := range rep.Pools {
		a, b := p.Addresses, p.Blocks
		for name, n := range map[string]blocks.Count{
			"addresses in use": a.InUse, "reserved addresses": a.Reserved, "available addresses": a.Available, "claimed blocks": b.Claimed,
			"free blocks": b.Free, "reserved blocks": b.Reserved, "allocatable blocks": b.Allocatable, "releasable blocks": b.Releasable,
		} {
			if n.Cmp(none) < 0 {
				t.Errorf("pool %s has %s %s", p.Name, n, name)
			}
		}
		if got := b.Claimed.Add(b.Free).Add(b.Reserved); got.Cmp(b.Capacity) != 0 {
			t.Errorf("pool %s: claimed, free and reserved come to %s of %s blocks", p.Name, got, b.Capacity)
		}
		if a.InUse.Cmp(a.Capacity) > 0 {
			t.Errorf("pool %s has %s of %s addresses in use", p.Name, a.InUse, a.Capacity)
		}
	}
	for _, b := range rep.Blocks {
		if size := blocks.Addresses(b.Prefix()); blocks.CountOf(b.InUse).Cmp(size) > 0 {
			t.Errorf("block %s has %d of %s addresses in use", b.CIDR, b.InUse, size)
		}
	}
	for _, subject := range []string{"fd00::/64", "fd00::/65", "fd00:0:0:1::5", "::/0", "10.0.0.5", "10.0.0.70", "0.0.0.0/0", "six", "one", "four", "all", "small", "n1", "n2", "gone", "shop/b", "beyond"} {
		q, err := explain.ParseQuery(subject, "")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := explain.Explain(st, r, q); err != nil || len(e.Subjects) == 0 {
			t.Errorf("explain %s: %v", subject, err)
		}
	}
}
