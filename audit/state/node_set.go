package state

import (
	"iter"
	"math/bits"
)

// nodeSet is a set of nodes, by index in NodeStates.
type nodeSet []uint64

func (s nodeSet) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s nodeSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// within reports whether t contains all of s.
func (s nodeSet) within(t nodeSet) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}

// without returns the nodes of s that are not in t.
func (s nodeSet) without(t nodeSet) nodeSet {
	out := make(nodeSet, len(s))
	for i := range s {
		out[i] = s[i] &^ t[i]
	}
	return out
}

func (s nodeSet) len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// all yields the nodes in order.
func (s nodeSet) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}
