package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
)

// CauseText says why a node has no block of a family, or that nothing keeps it from one.
func CauseText(n *NodeBlockStatus) string {
	switch {
	case n.Blockless() > 0:
		return stuckCauses(n)
	case n.Cause != CauseNone:
		return string(n.Cause)
	case len(n.Borrowed) > 0, len(n.Waiting) > 0:
		return "none now: its pools have blocks left, and it claims one at its next allocation"
	case len(n.Elsewhere) > 0:
		return "none now: it still holds blocks that it cannot take addresses from"
	case n.Addressed:
		return "none now: its pods use addresses outside any node's blocks"
	}
	return "no pod yet"
}

// Blockless counts the pods of the node that can get no address, and none of whose
// pools the node has a block of.
func (n *NodeBlockStatus) Blockless() (count int) {
	for _, s := range n.Stuck {
		if s.Blockless {
			count++
		}
	}
	return count
}

// RequiresProof is true unless all that is wrong is that pools do not serve pods, which
// no block would change.
func (n *NodeBlockStatus) RequiresProof() bool {
	return n.NoBlock() || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return s.Blockless && s.Cause != CauseUnserved })
}

// stuckCauses are the causes of the pods that blockless counts.
func stuckCauses(n *NodeBlockStatus) string {
	var out []string
	for _, s := range n.Stuck {
		if text := string(s.Cause); s.Blockless && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// StuckDetails are the details of the pods that blockless counts, or that of the node.
func StuckDetails(n *NodeBlockStatus) string {
	var out []string
	for _, s := range n.Stuck {
		if s.Blockless && !slices.Contains(out, s.Detail) {
			out = append(out, s.Detail)
		}
	}
	if len(out) == 0 {
		return n.Detail
	}
	return phrase.ListBy("; ", out)
}

// GradeNoBlock returns how bad it is that a node, or some pods of it, have no block
// of a family, and the words for it.
func GradeNoBlock(n *NodeBlockStatus) (Severity, string) {
	what := fmt.Sprintf("has no %s block", n.Family)
	if !n.NoBlock() {
		what += " for some of its pods"
	}
	stuck := n.Blockless()
	vms := 0 // borrowed for good and on purpose, see [Borrow.VM]
	for _, b := range n.Borrowed {
		if b.VM {
			vms++
		}
	}
	borrowed := len(n.Borrowed) - vms
	switch {
	case borrowed > 0 && stuck > 0:
		return Critical, fmt.Sprintf("%s: it borrows %s, and %s cannot get one, because %s", what, phrase.Plural(borrowed, "address"), phrase.Plural(stuck, "pod"), stuckCauses(n))
	case stuck > 0:
		return Critical, fmt.Sprintf("%s, and %s cannot get an address, because %s", what, phrase.Plural(stuck, "pod"), stuckCauses(n))
	case borrowed > 0 && n.Cause == CauseNone:
		return Error, fmt.Sprintf("%s and borrows %s", what, phrase.Plural(borrowed, "address"))
	case borrowed > 0:
		return Error, fmt.Sprintf("%s and borrows %s, because %s", what, phrase.Plural(borrowed, "address"), n.Cause)
	case n.Cause != CauseNone && n.Host.Schedulable:
		who, effect := "its next pod", "will get no address"
		if !n.Cause.PreventsAllocation() {
			effect = "will borrow its address"
		}
		if len(n.Waiting) > 0 {
			who = fmt.Sprintf("the next of its %s", phrase.Plural(len(n.Waiting), "waiting pod"))
		}
		return Warning, fmt.Sprintf("%s, and %s %s, because %s", what, who, effect, n.Cause)
	case vms > 0:
		return Info, fmt.Sprintf("%s; it borrows %s on purpose: virtual machines keep theirs wherever they run", what, phrase.Plural(vms, "address"))
	case len(n.Elsewhere) > 0:
		return Info, fmt.Sprintf("%s in the pools that select it now; it still holds %s", what, phrase.List(CIDRs(n.Elsewhere)))
	case n.Addressed:
		return Info, what + " of its own; its pods use addresses outside any node's blocks"
	}
	if len(n.Waiting) > 0 {
		return Info, fmt.Sprintf("%s yet; %s waiting for an address, and blocks are left to claim", what, phrase.NumberIs(len(n.Waiting), "pod"))
	}
	return Info, what + " yet, as it runs no pod"
}

// NoBlock is true if the node owns no usable block in its pools.
func (n *NodeBlockStatus) NoBlock() bool { return len(n.Blocks) == 0 }
