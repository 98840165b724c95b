package blocks

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
)

// Count is an immutable number of addresses or blocks. It has no upper bound, because an
// IPv6 pool can hold more than 2^64 addresses. The zero value is 0.
type Count struct{ big *big.Int }

// CountOf returns n as a Count.
func CountOf(n int) Count { return Count{big.NewInt(int64(n))} }

// PowerOfTwo returns 2^n, or 0 for negative n.
func PowerOfTwo(n int) Count {
	if n < 0 {
		return Count{}
	}
	return Count{new(big.Int).Lsh(big.NewInt(1), uint(n))}
}

// Addresses returns the number of addresses in a CIDR.
func Addresses(p netip.Prefix) Count {
	if !p.IsValid() {
		return Count{}
	}
	return PowerOfTwo(p.Addr().BitLen() - p.Bits())
}

// SlotsBetween returns the number of whole slots of prefix length bits in [from, to); 0 if
// there are none.
func SlotsBetween(from, to netip.Addr, bits int) Count {
	if !from.IsValid() || from.Compare(to) >= 0 {
		return Count{}
	}
	d := new(big.Int).Sub(addrInt(to), addrInt(from))
	return Count{d.Rsh(d, uint(to.BitLen()-bits))}
}

func (c Count) value() *big.Int {
	if c.big == nil {
		return new(big.Int)
	}
	return c.big
}

// Add returns c + d.
func (c Count) Add(d Count) Count { return Count{new(big.Int).Add(c.value(), d.value())} }

// Sub returns c - d.
func (c Count) Sub(d Count) Count { return Count{new(big.Int).Sub(c.value(), d.value())} }

// Cmp returns -1, 0 or 1 as c is less than, equal to or greater than d.
func (c Count) Cmp(d Count) int { return c.value().Cmp(d.value()) }

// IsZero reports whether c is 0.
func (c Count) IsZero() bool { return c.value().Sign() == 0 }

// Times returns c × n.
func (c Count) Times(n int) Count {
	return Count{new(big.Int).Mul(c.value(), big.NewInt(int64(n)))}
}

// Mul returns c × d.
func (c Count) Mul(d Count) Count { return Count{new(big.Int).Mul(c.value(), d.value())} }

// Div returns the quotient of two non-negative counts, rounded down. d must not be zero.
func (c Count) Div(d Count) Count { return Count{new(big.Int).Quo(c.value(), d.value())} }

// Int returns c as an int, and whether it fits.
func (c Count) Int() (int, bool) {
	if !c.value().IsInt64() {
		return 0, false
	}
	n := c.value().Int64()
	return int(n), int64(int(n)) == n
}

// Float returns the nearest float64, for ratios and metrics.
func (c Count) Float() float64 {
	f, _ := new(big.Float).SetInt(c.value()).Float64()
	return f
}

// Share returns c as a fraction of whole, between 0 and 1; 0 if whole is 0.
func (c Count) Share(whole Count) float64 {
	if whole.IsZero() {
		return 0
	}
	f, _ := new(big.Rat).SetFrac(c.value(), whole.value()).Float64()
	return f
}

// String returns c in decimal, with all digits.
func (c Count) String() string { return c.value().String() }

// MarshalJSON writes c as an integer with all digits.
func (c Count) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON parses an integer of any size.
func (c *Count) UnmarshalJSON(b []byte) error {
	n, ok := new(big.Int).SetString(string(b), 10)
	if !ok {
		return fmt.Errorf("reading a count: %q is not an integer", b)
	}
	c.big = n
	return nil
}

func addrInt(a netip.Addr) *big.Int {
	if a.Is4() {
		b := a.As4()
		return new(big.Int).SetUint64(uint64(binary.BigEndian.Uint32(b[:])))
	}
	b := a.As16()
	return new(big.Int).SetBytes(b[:])
}

// intAddr reverses addrInt. The result has the address family of like.
func intAddr(n *big.Int, like netip.Prefix) netip.Addr {
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, like.Addr().BitLen()/8)))
	return a
}
