package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// handle explains a handle.
func (x *explainer) handle(id string) Explained {
	s := newBuilder(state.HandleSubject(id))
	x.handleSection(s, id)
	refs := x.HandleRefs(id)
	s.listed("Addresses")
	for _, r := range refs {
		s.factf(blockSource(r.Block), r.Addr().String(), "%s%s, in block %s of %s", x.holderText(r.Block, r.Ordinal),
			phrase.OnNode(x.addressNode(r.Addr(), r, true)), r.Block.CIDR, phrase.Owner(r.Block.Owner))
	}
	x.handleFindings(s, id, refs)
	x.findingRemedies(s)
	h := x.Handle(id)
	switch {
	case h == nil && x.unread(blocks.Handles) != "":
		s.Summary = fmt.Sprintf("Blocks record %s under it; its object is %s.", phrase.Plural(len(refs), "address"), x.unread(blocks.Handles))
	case h == nil:
		s.Summary = fmt.Sprintf("Blocks record %s under it, and no such handle exists.", phrase.Plural(len(refs), "address"))
	case x.unread(blocks.Blocks) != "":
		s.Summary = "The handle exists; blocks record under it: " + x.unread(blocks.Blocks) + "."
	case len(refs) == 0:
		s.Summary = "The handle exists, and no block refers to it."
	default:
		s.Summary = fmt.Sprintf("The handle exists, and blocks record %s under it.", phrase.Plural(len(refs), "address"))
	}
	return s.done()
}

// handleSection compares a handle's object with the blocks' records.
func (x *explainer) handleSection(s *builder, id string) {
	s.section("Handle")
	h, refs := x.Handle(id), x.HandleRefs(id)
	src := ""
	switch {
	case h != nil:
		src = sourceOf("ipamhandle", h.Meta)
		s.fact(src, "object", "exists"+comma(since(h.Created)))
		if h.SoftDeleted {
			s.fact(src, "deleted", "marked deleted")
		}
	case x.unread(blocks.Handles) != "":
		s.fact("", "object", x.unread(blocks.Handles))
	default:
		s.fact("", "object", "none of this ID exists")
	}
	for _, p := range handleBlocks(h, refs) {
		said, have := 0, 0
		if h != nil {
			for _, c := range h.Blocks {
				if c.CIDR == p {
					said += c.Count
				}
			}
		}
		for _, r := range refs {
			if r.Block.CIDR == p {
				have++
			}
		}
		switch {
		case h == nil:
			s.factf("", "in "+p.String(), "the block records %s", phrase.Plural(have, "address"))
		case said == have:
			s.factf(src, "in "+p.String(), "it counts %d, as the block does", said)
		default:
			s.factf(src, "in "+p.String(), "it counts %d, and the block records %d", said, have)
		}
	}
	if len(refs) > 1 {
		var addrs []string
		for _, r := range refs {
			addrs = append(addrs, r.Addr().String())
		}
		s.factf(src, "addresses", "%s, which are released together", strings.Join(addrs, ", "))
	}
}

// handleBlocks returns the blocks that a handle lists or that refer to it.
func handleBlocks(h *blocks.Handle, refs []state.AllocationRef) (out []netip.Prefix) {
	if h != nil {
		for _, c := range h.Blocks {
			out = append(out, c.CIDR)
		}
	}
	for _, r := range refs {
		out = append(out, r.Block.CIDR)
	}
	slices.SortFunc(out, blocks.ComparePrefixes)
	return slices.Compact(out)
}
