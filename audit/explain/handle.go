package explain

import (
	"cmp"
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
		s.factf(blockSource(r.Block), r.Addr().String(), "%s%s, in %s", x.holderText(r.Block, r.Ordinal), phrase.OnNode(x.addressNode(r.Addr(), r, true)), ownedBlock(r.Block))
	}
	x.handleFindings(s, id, refs)
	x.findingRemedies(s)
	object := "No such handle exists"
	if unread := x.unread(blocks.Handles); x.Handle(id) != nil {
		object = "The handle exists"
	} else if unread != "" {
		object = "Its object is " + unread
	}
	known := fmt.Sprint(len(refs))
	if len(x.Unreadable(blocks.Blocks)) > 0 {
		known = fmt.Sprintf("at least %d, as some blocks cannot be read", len(refs))
	}
	s.Summary = fmt.Sprintf("%s; addresses that blocks record under it: %s.", object, cmp.Or(x.unread(blocks.Blocks), known))
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
			s.factf("", "in "+p.String(), "the block records %d", have)
		case have == 0 && x.unread(blocks.Blocks) != "":
			s.factf(src, "in "+p.String(), "it counts %d", said)
		case have == 0 && x.BlockMayCover(p):
			s.factf(src, "in "+p.String(), "it counts %d; the block cannot be read", said)
		case have == 0 && x.BlockOf(p) == nil:
			s.factf(src, "in "+p.String(), "it counts %d, and there is no such block", said)
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
