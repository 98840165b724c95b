package blocks

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestSlotsAgreeWithCounting compares the arithmetic with counting slot by slot and address
// by address. The random pools have reservations and blocks of several sizes, some of which
// overlap.
func TestSlotsAgreeWithCounting(t *testing.T) {
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 2000 {
		base := "10.0.0.0/%d"
		offset := 0
		if i%2 == 1 {
			base, offset = "fd00::/%d", 96
		}
		bits := 20 + r.IntN(4)
		p := &Pool{CIDR: netip.MustParsePrefix(fmt.Sprintf(base, bits+offset)), BlockSize: offset + bits + r.IntN(5)}
		var all []*Block
		for range r.IntN(12) {
			all = append(all, randomBlock(r, p))
		}
		slices.SortFunc(all, func(a, b *Block) int { return Compare(a, b) })
		var rs []Reservation
		for range r.IntN(4) {
			rs = append(rs, Reservation{CIDRs: []netip.Prefix{randomPrefix(r, p, bits+offset+r.IntN(10))}})
		}
		reserved := NewReservedSet(rs)
		gotSlots, gotAddrs := PoolSlots(p, all, reserved), PoolAddresses(p, all, reserved)
		wantSlots, wantAddrs := countSlots(p, all, rs), countAddresses(p, all, rs)
		if g, w := fmt.Sprint(gotSlots), fmt.Sprint(wantSlots); g != w {
			t.Fatalf("seed %d, case %d: slots of %+v\nblocks %v\nreserved %v\n got %s\nwant %s", seed, i, p.CIDR, prefixes(all), rs, g, w)
		}
		if g, w := fmt.Sprint(gotAddrs), fmt.Sprint(wantAddrs); g != w {
			t.Fatalf("seed %d, case %d: addresses of %+v\nblocks %v\nreserved %v\n got %s\nwant %s", seed, i, p.CIDR, prefixes(all), rs, g, w)
		}
	}
}

func prefixes(bs []*Block) (out []string) {
	for _, b := range bs {
		out = append(out, b.CIDR.String())
	}
	return out
}

func randomPrefix(r *rand.Rand, p *Pool, bits int) netip.Prefix {
	bits = min(bits, p.CIDR.Addr().BitLen())
	size, _ := Addresses(p.CIDR).Int()
	out, _ := addOffset(p.CIDR.Addr(), uint64(r.IntN(size))).Prefix(bits)
	return out
}

// randomBlock returns a block of the pool's block size or a slightly different one. It may
// reach beyond the pool.
func randomBlock(r *rand.Rand, p *Pool) *Block {
	bits := p.BlockSize
	if r.IntN(3) == 0 {
		bits += r.IntN(5) - 2
	}
	b := &Block{CIDR: randomPrefix(r, p, bits)}
	n, _ := Addresses(b.CIDR).Int()
	for range n {
		o := Free
		if r.IntN(3) == 0 {
			o = 0
		}
		b.Ordinals = append(b.Ordinals, o)
	}
	return b
}

func slots(p *Pool) (out []netip.Prefix) {
	n, _ := PowerOfTwo(p.BlockSize - p.CIDR.Bits()).Int()
	step, _ := p.BlockAddresses().Int()
	for i := range n {
		out = append(out, netip.PrefixFrom(addOffset(p.CIDR.Addr(), uint64(i*step)), p.BlockSize))
	}
	return out
}

func isReserved(a netip.Addr, rs []Reservation) bool {
	for _, r := range rs {
		for _, p := range r.CIDRs {
			if p.Contains(a) {
				return true
			}
		}
	}
	return false
}

func countSlots(p *Pool, all []*Block, rs []Reservation) (s Slots) {
	for _, slot := range slots(p) {
		claimed, exact, whole := false, false, true
		for _, b := range all {
			claimed = claimed || b.CIDR.Overlaps(slot)
			exact = exact || b.CIDR == slot
		}
		n, _ := Addresses(slot).Int()
		for i := range n {
			whole = whole && isReserved(addOffset(slot.Addr(), uint64(i)), rs)
		}
		one := CountOf(1)
		s.Capacity = s.Capacity.Add(one)
		switch {
		case claimed:
			s.Claimed = s.Claimed.Add(one)
		case whole:
			s.Reserved = s.Reserved.Add(one)
		default:
			s.Free = s.Free.Add(one)
		}
		if !exact && !whole {
			s.Allocatable = s.Allocatable.Add(one)
		}
	}
	return s
}

func countAddresses(p *Pool, all []*Block, rs []Reservation) (out Addrs) {
	n, _ := Addresses(p.CIDR).Int()
	inUse, reserved, taken := 0, 0, 0
	for i := range n {
		a := addOffset(p.CIDR.Addr(), uint64(i))
		used := false
		for _, b := range all {
			if o, ok := b.Ordinal(a); ok && b.Ordinals[o] != Free {
				used = true
			}
		}
		held := isReserved(a, rs)
		if used {
			inUse++
		}
		if held {
			reserved++
		}
		if used || held {
			taken++
		}
	}
	return Addrs{Capacity: CountOf(n), InUse: CountOf(inUse), Reserved: CountOf(reserved), Available: CountOf(n - taken)}
}

// TestHugePools shows that counts of an IPv6 /48 do not overflow.
func TestHugePools(t *testing.T) {
	p := &Pool{CIDR: netip.MustParsePrefix("2001:db8::/48"), BlockSize: 122}
	b := &Block{CIDR: netip.MustParsePrefix("2001:db8::/122"), Ordinals: make([]int32, 64)}
	rs := NewReservedSet([]Reservation{{CIDRs: []netip.Prefix{netip.MustParsePrefix("2001:db8:0:8000::/49")}}})
	raw, err := json.Marshal(struct {
		A Addrs
		S Slots
	}{PoolAddresses(p, []*Block{b}, rs), PoolSlots(p, []*Block{b}, rs)})
	if err != nil {
		t.Fatal(err)
	}
	// 2^80 addresses, half of them reserved; 2^74 blocks.
	want := `{"A":{"capacity":1208925819614629174706176,"inUse":64,"reserved":604462909807314587353088,"available":604462909807314587353024},` +
		`"S":{"capacity":18889465931478580854784,"claimed":1,"free":9444732965739290427391,"reserved":9444732965739290427392,"allocatable":9444732965739290427391}}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	var back struct {
		A Addrs
		S Slots
	}
	if err := json.Unmarshal(raw, &back); err != nil || back.A.Capacity.Cmp(PowerOfTwo(80)) != 0 {
		t.Errorf("reading the report back: capacity %s, error %v", back.A.Capacity, err)
	}
}

// TestMoreThanItHolds: ordinals beyond the block's CIDR do not count as in use.
func TestMoreThanItHolds(t *testing.T) {
	p := &Pool{CIDR: netip.MustParsePrefix("10.0.0.0/26"), BlockSize: 26}
	b := &Block{CIDR: p.CIDR, Ordinals: make([]int32, 100)}
	for name, rs := range map[string][]Reservation{"none": nil, "some": {{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}}}} {
		got := PoolAddresses(p, []*Block{b}, NewReservedSet(rs))
		if got.InUse.String() != "64" || got.Available.String() != "0" {
			t.Errorf("with %s reserved: %s in use, %s available of %s", name, got.InUse, got.Available, got.Capacity)
		}
	}
	two := []*Block{b, {CIDR: netip.MustParsePrefix("10.0.0.32/27"), Ordinals: make([]int32, 50)}}
	if got := PoolAddresses(p, two, ReservedSet{}); got.Available.String() != "0" {
		t.Errorf("of overlapping blocks: %s available", got.Available)
	}
}

// TestForeignSizes shows how free and allocatable slots differ: Calico's allocator compares
// exact CIDRs only.
func TestForeignSizes(t *testing.T) {
	p := &Pool{CIDR: netip.MustParsePrefix("10.0.0.0/24"), BlockSize: 26}
	small := &Block{CIDR: netip.MustParsePrefix("10.0.0.64/28"), Ordinals: make([]int32, 16)}
	large := &Block{CIDR: netip.MustParsePrefix("10.0.0.128/25"), Ordinals: make([]int32, 128)}
	s := PoolSlots(p, []*Block{small, large}, ReservedSet{})
	if got, want := fmt.Sprint(s), "{4 3 1 0 4}"; got != want {
		t.Errorf("capacity, claimed, free, reserved, allocatable: got %s, want %s", got, want)
	}
	if got := ClaimedSlots(p, []*Block{small}).String(); got != "1" {
		t.Errorf("a small block claims %s slots, want 1", got)
	}
}

// TestSmallerThanABlock: a pool smaller than its block size has no slots.
func TestSmallerThanABlock(t *testing.T) {
	p := &Pool{CIDR: netip.MustParsePrefix("10.0.0.0/28"), BlockSize: 26}
	if s := PoolSlots(p, nil, ReservedSet{}); !s.Capacity.IsZero() || !s.Allocatable.IsZero() {
		t.Errorf("got %v, want no slot", s)
	}
}
