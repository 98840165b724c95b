package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoFreeBlocks = audit.Check{
	ID:         "pool/no-free-blocks",
	Title:      "an enabled workload pool has no block left to claim",
	Severities: []state.Severity{state.Critical, state.Error, state.Warning, state.Info},
	Graded:     "critical if pods of a node without a block borrow or wait (under strict affinity also pods of a node without room in its blocks); error if the next pod of such a node would; warning while every node has a block; info while other pools that serve the same nodes and namespaces have blocks left",
	Why:        "A node that needs a block now borrows single addresses from other nodes' blocks, and their owners may drop the traffic. Under strict affinity its pods get no address. Free addresses may remain: a pool can run out of blocks long before it runs out of addresses.",
	Confirm:    "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity lists the blocks' owners; calicoctl ipam show --show-blocks shows how full each block is.",
	Misread:    "\"The pool has free addresses, so it is fine\": a node without a block can only borrow the free addresses in other nodes' blocks.",
	Remedies:   remedies.Shortage,
	Verify:     "Start a pod on each node that had no block: kubectl get blockaffinities shows a block of that node.",
	Never:      "Never delete IPAMBlock objects by hand: that erases the record of addresses that pods still use.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional:   append(slices.Clip(remedies.RootReads), state.ReleaseReads...),
	Run: func(st *state.State, f *audit.Findings) {
		evaluated := allocationEvaluated(st, f)
		for _, p := range st.Pools {
			if !p.OutOfBlocks() {
				continue
			}
			sev, cut, next := state.Warning, blocks.Names(nil), blocks.Names(nil)
			if evaluated && st.OtherIPAM().Unknown == "" {
				cut, next = st.CutOff(p)
			}
			effect := "; every schedulable node has a block"
			switch {
			case len(cut) > 0:
				sev = state.Critical
				lack := "a block"
				if slices.ContainsFunc(cut, func(name string) bool { return hasBlock(st.NodeState(name), p.Family()) }) {
					lack = "room in a block"
				}
				effect = fmt.Sprintf(", and pods on nodes without %s borrow or wait: %s", lack, cut)
			case len(next) > 0:
				sev = state.Error
				effect = fmt.Sprintf("; the next pod on nodes without a block will borrow or fail: %s", next)
			case evaluated && st.Relieved(p, (*state.Pool).HasBlocks):
				sev = state.Info
				effect = "; other pools for the same nodes have some"
			case !evaluated || p.MayCutOff() || st.OtherIPAM().Unknown != "" || !slices.Contains(st.Families, p.Family()):
				effect = ""
			}
			message := fmt.Sprintf("pool %s has no block left to claim (blocks: %s)%s%s", p.Name, p.Slots.Capacity, effect, st.ReservedBy(p))
			if p.TooSmall() {
				message = fmt.Sprintf("pool %s (%s) is smaller than its block size /%d and has no block", p.Name, p.CIDR, p.BlockSize)
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: append(cut, next...), Absence: sev > state.Warning, Message: message,
				Evidence: state.Evidences(
					"blocks", fmt.Sprintf("%s of %s claimed, %s reserved, %s allocatable", p.Slots.Claimed, p.Slots.Capacity, p.Slots.Reserved, p.Slots.Allocatable),
					"addresses", fmt.Sprintf("%s of %s in use, %s available", p.Addrs.InUse, p.Addrs.Capacity, p.Addrs.Available),
					"nodes borrowing or waiting", cut, "nodes whose next pod will borrow or fail", next,
					"nodes holding several blocks", nodesHoldingSeveral(st, []*state.Pool{p}), "releasable blocks", releasableText(p)),
				Root: remedies.Of(st).RootOfPool(p), Remedies: []remedies.Remedy{},
			})
		}
	},
}

func hasBlock(h *state.NodeState, f blocks.Family) bool {
	return slices.ContainsFunc(h.BlockStatus, func(n *state.NodeBlockStatus) bool { return n.Family == f && !n.NoBlock() })
}

// allocationEvaluated reports whether the reads that show which nodes cannot allocate are complete.
// If not, it marks the check inconclusive, because the severity is unknown.
func allocationEvaluated(st *state.State, f *audit.Findings) bool {
	if g := st.FirstMissing(state.AllocationReads); g != nil {
		f.Inconclusive("which nodes cannot allocate was not evaluated: %s", g)
		return false
	}
	return true
}

func releasableText(p *state.Pool) string {
	if !p.ReleasableKnown {
		return "not evaluated"
	}
	var out blocks.Names
	for _, b := range p.ReleasableBlocks() {
		out = append(out, fmt.Sprintf("%s of %s", b.CIDR, b.Owner))
	}
	return phrase.OrNone(phrase.List(out))
}
