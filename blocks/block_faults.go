package blocks

import "fmt"

// Faults describes the contradictions within a block. Every ordinal must be either allocated or queued
// as unallocated. Allocations must point to existing attributes, and must not be newer than the block.
// Calico's allocator keeps and relies on these invariants (libcalico-go ipam/ipam_block.go).
func (b *Block) Faults() (out []string) {
	size := len(b.Ordinals)
	if want, ok := Addresses(b.CIDR).Int(); !ok || want != size {
		out = append(out, fmt.Sprintf("it records %d addresses where its CIDR has %s", size, Addresses(b.CIDR)))
	}
	referenced := make([]bool, len(b.Attributes))
	for i, o := range b.Ordinals {
		switch {
		case o == Free:
		case o < 0 || int(o) >= len(b.Attributes):
			out = append(out, fmt.Sprintf("ordinal %d points to attributes %d, of which there are %d", i, o, len(b.Attributes)))
		default:
			referenced[o] = true
		}
	}
	for i, ok := range referenced {
		if !ok {
			out = append(out, fmt.Sprintf("no address uses attributes %d", i))
		}
	}
	queued := make([]bool, size)
	for _, u := range b.Unallocated {
		switch {
		case u < 0 || int(u) >= size:
			out = append(out, fmt.Sprintf("ordinal %d is queued as unallocated and lies outside the block", u))
		case queued[u]:
			out = append(out, fmt.Sprintf("ordinal %d is queued as unallocated twice", u))
		case b.Ordinals[u] != Free:
			queued[u] = true
			out = append(out, fmt.Sprintf("ordinal %d is allocated and queued as unallocated", u))
		default:
			queued[u] = true
		}
	}
	for i, o := range b.Ordinals {
		if o == Free && !queued[i] {
			out = append(out, fmt.Sprintf("ordinal %d is neither allocated nor queued as unallocated", i))
		}
	}
	for _, s := range b.OrdinalSequences {
		if s.Sequence > b.Sequence {
			out = append(out, fmt.Sprintf("ordinal %d was allocated at sequence %d, and the block is at %d", s.Ordinal, s.Sequence, b.Sequence))
		}
	}
	return out
}
