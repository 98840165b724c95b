package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// fillSection counts a block's allocated addresses by use.
func (x *explainer) fillSection(s *builder, b *state.Block) {
	if b.Used == 0 {
		return
	}
	src := blockSource(b)
	counts, leaked := map[state.UseKind]int{}, 0
	for i := range b.Ordinals {
		if r := (state.AllocationRef{Block: b, Ordinal: i}); b.Ordinals[i] != blocks.Free {
			counts[r.Kind()]++
			if !x.Classify(r).Owned {
				leaked++
			}
		}
	}
	s.section("Allocated to")
	for _, sort := range allocationSorts {
		if n := counts[sort.kind]; n > 0 {
			s.fact(src, sort.name, n)
		}
	}
	if x.FirstMissing(useReads) != nil {
		return
	}
	if leaked > 0 {
		s.factf("", "not owned", "%d of these seem to have no owner", leaked)
	}
	if x.Lacking(state.ReleaseReads) != nil {
		return
	}
	if then := x.IfEmptied(b); then.OK {
		s.fact(src, "once empty", "could be released after the grace period, unless new pods take addresses of it")
	} else {
		s.fact(src, "once empty", "must stay: "+then.Reason)
	}
}

// allocationSorts are the kinds of allocation, in display order.
var allocationSorts = []struct {
	kind state.UseKind
	name string
}{
	{state.UsePod, "pods"}, {state.UseVM, "virtual machines"}, {state.UseTunnel, "tunnels"}, {state.UseService, "services"},
	{state.UseWindows, "kept back by Windows"}, {state.UseCooling, "cooling down"}, {state.UseUnknown, "others"},
}

// holderSections lists the users of a block's addresses by node: the owner first, then the
// borrowers, then addresses without a node.
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
		where := "Addresses on " + node
		switch {
		case node == "":
			where = "Addresses on no node"
		case owner != "" && node != owner:
			where = "Borrowed by " + node
		}
		s.listed("%s: %d", where, len(byNode[node]))
		for _, i := range byNode[node] {
			s.fact(blockSource(b), b.Address(i).String(), x.holderText(b, i))
		}
	}
}

// holderText names the holder of an address, and whether the audit believes it.
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
