package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// fillSection counts what a block's addresses are allocated to.
func (x *explainer) fillSection(s *builder, b *state.Block) {
	if b.Used == 0 {
		return
	}
	src := blockSource(b)
	counts := map[string]int{}
	for i := range b.Ordinals {
		if b.Ordinals[i] != blocks.Free {
			counts[allocationSort(b, b.At(i))]++
		}
	}
	s.section("Allocated to")
	for _, sort := range allocationSorts {
		if n := counts[sort]; n > 0 {
			s.fact(src, sort, fmt.Sprint(n))
		}
	}
	if x.FirstMissing(useReads) != nil {
		return
	}
	nobody := 0
	for i := range b.Ordinals {
		if b.Ordinals[i] != blocks.Free && !x.Classify(state.AllocationRef{Block: b, Ordinal: i}).Owned {
			nobody++
		}
	}
	if nobody > 0 {
		s.factf("", "not owned", "%d of these: nothing seems to own them", nobody)
	}
}

// allocationSorts are the sorts of allocation, in the order in which they are
// counted.
var allocationSorts = []string{"pods", "virtual machines", "tunnels", "services", "kept back by Windows", "cooling down", "others"}

func allocationSort(b *state.Block, a *blocks.Attributes) string {
	switch state.UseKindOf(b, a) {
	case state.UseCooling:
		return "cooling down"
	case state.UseWindows:
		return "kept back by Windows"
	case state.UseTunnel:
		return "tunnels"
	case state.UseService:
		return "services"
	case state.UseVM:
		return "virtual machines"
	case state.UsePod:
		return "pods"
	case state.UseUnknown:
	}
	return "others"
}

// holderSections list who holds a block's addresses, node by node: the owner
// first, then those that borrow, then what no node uses.
func (x *explainer) holderSections(s *builder, b *state.Block) {
	byNode := map[string][]int{}
	for i := range b.Ordinals {
		if b.Ordinals[i] != blocks.Free {
			n := x.addressNode(b.Address(i), state.AllocationRef{Block: b, Ordinal: i}, true)
			byNode[n] = append(byNode[n], i)
		}
	}
	owner := b.Owner.Node()
	order := slices.SortedFunc(maps.Keys(byNode), func(m, n string) int {
		rank := func(s string) string {
			switch s {
			case owner:
				return "0"
			case "":
				return "2"
			}
			return "1" + s
		}
		return strings.Compare(rank(m), rank(n))
	})
	for _, node := range order {
		count := phrase.Plural(len(byNode[node]), "address")
		switch {
		case node == "":
			s.listed("On no node: %s", count)
		case owner != "" && node != owner:
			s.listed("Borrowed by %s: %s", node, count)
		default:
			s.listed("On %s: %s", node, count)
		}
		for _, i := range byNode[node] {
			s.fact(blockSource(b), b.Address(i).String(), x.holderText(b, i))
		}
	}
}

// holderText says who holds an address, and whether that is believed.
func (x *explainer) holderText(b *state.Block, i int) string {
	out := x.holder(b, i)
	attr := b.At(i)
	if w := x.LiveUser(b.Address(i), attr); w != nil && attr != nil && attr.Pod != "" && (w.Name != attr.Pod || w.Namespace != attr.Namespace) {
		out = fmt.Sprintf("pod %s, though allocated to %s", w.FullName(), out)
	}
	if x.FirstMissing(useReads) == nil {
		if v := x.Classify(state.AllocationRef{Block: b, Ordinal: i}); !v.Owned {
			out += " (nothing seems to own it: " + v.Why() + ")"
		}
	}
	return out
}
