// Package nodeset has sets of nodes, as bits.
package nodeset

import (
	"iter"
	"math/bits"
)

// Set is a set of nodes, by index in a list.
type Set []uint64

// New returns an empty set for a number of nodes.
func New(n int) Set { return make(Set, (n+63)/64) }

// Add adds a node.
func (s Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Has reports whether the set contains a node.
func (s Set) Has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Within reports whether t contains all of s.
func (s Set) Within(t Set) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}

// Without returns the nodes of s that are not in t.
func (s Set) Without(t Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i] &^ t[i]
	}
	return out
}

// Len returns the number of nodes.
func (s Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// All yields the nodes in order.
func (s Set) All() iter.Seq[int] {
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
