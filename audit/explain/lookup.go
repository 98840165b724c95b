package explain

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// podsNamed returns the pods of a name, and those that no longer exist and still have addresses,
// as NAMESPACE/NAME. An empty namespace stands for all.
func (x *explainer) podsNamed(namespace, name string) (out blocks.Names) {
	if namespace != "" {
		if x.knowsPod(namespace, name) {
			out = append(out, namespace+"/"+name)
		}
		return out
	}
	for _, w := range x.Workloads {
		if w.Name == name {
			out = append(out, w.FullName())
		}
	}
	for _, b := range x.IPBlocks {
		for i := range b.Ordinals {
			if a := allocated(b, i); a != nil && a.Pod == name && !slices.Contains(out, a.Namespace+"/"+name) {
				out = append(out, a.Namespace+"/"+name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// allocatedTo returns the addresses that blocks record for a pod.
func (x *explainer) allocatedTo(namespace, name string) (out []state.AllocationRef) {
	for _, b := range x.IPBlocks {
		for i := range b.Ordinals {
			if a := allocated(b, i); a != nil && a.Namespace == namespace && a.Pod == name {
				out = append(out, state.AllocationRef{Block: b, Ordinal: i})
			}
		}
	}
	return out
}

// allocated returns the attributes of an allocated ordinal; nil if it is free.
func allocated(b *state.Block, ordinal int) *blocks.Attributes {
	if b.Ordinals[ordinal] == blocks.Free {
		return nil
	}
	return b.At(ordinal)
}

// addressNode returns the node that uses an address; empty if unknown.
func (x *explainer) addressNode(a netip.Addr, ref state.AllocationRef, allocated bool) string {
	attr := ref.AttributesIf(allocated)
	switch w := x.LiveUser(a, attr); {
	case len(x.TunnelsAt(a)) > 0:
		return x.TunnelsAt(a)[0].Node.Name
	case w != nil:
		return w.Node
	case attr != nil:
		return attr.Node
	}
	return ""
}

// covering returns the blocks that contain an address, the most specific first.
func (x *explainer) covering(a netip.Addr) []*state.Block {
	out := x.BlocksAt(state.IPPrefix(a))
	slices.SortStableFunc(out, func(b, c *state.Block) int { return c.CIDR.Bits() - b.CIDR.Bits() })
	return out
}

// poolsAround returns the pools that contain or overlap a CIDR. The pool that the CIDR counts to
// comes first.
func (x *explainer) poolsAround(p netip.Prefix) (out []*state.Pool) {
	main := x.PoolOf(p)
	for _, q := range x.Pools {
		switch {
		case q == main:
			out = slices.Insert(out, 0, q)
		case q.CIDR.Overlaps(p):
			out = append(out, q)
		}
	}
	return out
}

// vanished reports whether a node of this name is known not to exist.
func (x *explainer) vanished(node string) bool {
	return node != "" && x.unread(blocks.Nodes) == "" && x.Vanished(node)
}
