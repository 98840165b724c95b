package view

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// short writes a count for people: with all digits while they can be taken in at
// a glance, else as a power of two or to two digits. Only tables shorten; data
// keeps every digit.
func short(c blocks.Count) string {
	s := c.String()
	if len(s) <= 8 {
		return s
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.Sign() < 0 {
		return s
	}
	if zeros := n.TrailingZeroBits(); n.BitLen() == int(zeros)+1 {
		return fmt.Sprintf("2^%d", zeros)
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return strings.NewReplacer("e+0", "e", "e+", "e").Replace(fmt.Sprintf("%.2g", f))
}

// percent writes a share of a whole so that "0%" means none and "100%" all.
func percent(part, whole blocks.Count) string {
	if whole.IsZero() {
		return "-"
	}
	share := part.Share(whole) * 100
	switch {
	case part.IsZero():
		return "0%"
	case share < 1:
		return "<1%"
	case share >= 99.5 && part.Cmp(whole) < 0:
		return ">99%"
	}
	return fmt.Sprintf("%.0f%%", share)
}
