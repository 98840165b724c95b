package checks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestCorruptBlockStays: an empty block that contradicts itself may hold addresses that it does
// not record, so it is not releasable.
func TestCorruptBlockStays(t *testing.T) {
	for name, spoil := range map[string]func(b *blocks.Block){
		"":                               func(*blocks.Block) {},
		"an ordinal is in no list":       func(b *blocks.Block) { b.Unallocated = b.Unallocated[1:] },
		"an ordinal is queued twice":     func(b *blocks.Block) { b.Unallocated = append(b.Unallocated, b.Unallocated[0]) },
		"a negative ordinal is queued":   func(b *blocks.Block) { b.Unallocated = append(b.Unallocated, -1) },
		"an ordinal behind it is queued": func(b *blocks.Block) { b.Unallocated = append(b.Unallocated, 64) },
		"attributes of no address":       func(b *blocks.Block) { b.Attributes = append(b.Attributes, blocks.Attributes{}) },
		"an address of no attributes":    func(b *blocks.Block) { b.Ordinals[3] = 0 },
		"a sequence beyond that of block": func(b *blocks.Block) {
			b.OrdinalSequences = append(b.OrdinalSequences, blocks.OrdinalSequence{Ordinal: 1, Sequence: b.Sequence + 1})
		},
		"an ordinal less": func(b *blocks.Block) { b.Ordinals = b.Ordinals[1:] },
	} {
		snap, err := statedsl.Parse("pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\nuse 10.0.0.1 shop/a n1\nblock 10.0.0.64/26 n1\n")
		if err != nil {
			t.Fatal(err)
		}
		b, corrupt := &snap.Blocks[1], name != ""
		spoil(b)
		x := state.New(snap, state.Options{}).BlockOf(b.CIDR)
		if r := x.Releasability; r.OK == corrupt || corrupt && (len(x.Faults) == 0 || x.Used == 0 && r.Code != state.RetainCorrupt) {
			t.Errorf("%q: faults %v; releasable: %t, %s", name, x.Faults, r.OK, r.Reason)
		}
	}
}
