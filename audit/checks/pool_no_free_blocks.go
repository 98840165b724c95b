package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoFreeBlocks = audit.Check{
	ID:         "pool/no-free-blocks",
	Title:      "an enabled workload pool has no block left to claim",
	Severities: []state.Severity{state.Critical, state.Error, state.Warning},
	Graded:     "critical, error or warning",
	Why: "A node that needs a block now borrows single addresses from other nodes' blocks, whose owners may drop the traffic; under strict affinity its pods get none. " +
		"Plenty of addresses may be free all the same: addresses and blocks run out separately.",
	Confirm: "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity lists who holds the blocks; " +
		"calicoctl ipam show --show-blocks shows how full each one is.",
	Misread: "\"The pool has free addresses, so it is fine\": free addresses inside other nodes' blocks help a node without a block only by borrowing.",
	Fix: "Add a pool (or one with smaller blocks, such as /28 instead of /26), or free empty blocks of nodes that hold several; " +
		"then restart the pods that borrow, so that their node claims a block of its own.",
	Verify:   "Start a pod on each node that had no block: kubectl get blockaffinities then shows a block of that node.",
	Never:    "Never delete IPAMBlock objects by hand: that erases the record of addresses that pods still use.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: append(slices.Clip(allocationReads), state.ReleaseReads...),
	Run: func(st *state.State, f *audit.Findings) {
		judged := allocationEvaluated(st, f)
		for _, p := range st.Pools {
			if !p.ServesWorkloads() || !p.Slots.Allocatable.IsZero() {
				continue
			}
			sev, cut, next := state.Warning, []string(nil), []string(nil)
			if judged {
				cut, next = cutOff(st, p)
			}
			message := fmt.Sprintf("pool %s has none of its %s left to claim; no node that could take pods lacks one", p.Name, state.PluralCount(p.Slots.Capacity, "block"))
			switch {
			case p.Slots.Capacity.IsZero():
				message = fmt.Sprintf("pool %s is smaller than one of its own blocks (%s, blocks of /%d) and gives none", p.Name, p.CIDR, p.BlockSize)
			case len(cut) > 0:
				sev = state.Critical
				message = fmt.Sprintf("pool %s has none of its %s left to claim, and pods of %s without a block borrow or wait: %s",
					p.Name, state.PluralCount(p.Slots.Capacity, "block"), state.Plural(len(cut), "node"), state.List(cut))
			case len(next) > 0:
				sev = state.Error
				message = fmt.Sprintf("pool %s has none of its %s left to claim; the next pod of %s without a block will borrow or fail: %s",
					p.Name, state.PluralCount(p.Slots.Capacity, "block"), state.Plural(len(next), "node"), state.List(next))
			case !judged || !slices.Contains(st.Families, p.Family()):
				message = fmt.Sprintf("pool %s has none of its %s left to claim", p.Name, state.PluralCount(p.Slots.Capacity, "block"))
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: append(cut, next...), Absence: sev > state.Warning, Message: message,
				Evidence: state.Evidences(
					"blocks", fmt.Sprintf("%s of %s claimed, %s reserved, %s allocatable", p.Slots.Claimed, p.Slots.Capacity, p.Slots.Reserved, p.Slots.Allocatable),
					"addresses", fmt.Sprintf("%s of %s in use, %s available", p.Addrs.InUse, p.Addrs.Capacity, p.Addrs.Available),
					"nodes borrowing or waiting", state.List(cut), "nodes next to", state.List(next),
					"hoarders", state.ListBy("; ", st.NodesHoldingSeveral([]*state.Pool{p})), "reclaimable blocks", reclaimableText(p)),
				Fix: audit.Look("calico-audit report -o wide --check node/many-blocks,block/empty --pool " + state.Arg(p.Name)),
			})
		}
	},
}

// allocationReads is what it takes, beside the pool's own numbers, to say which nodes
// starve.
var allocationReads = []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs}

// allocationEvaluated reports whether enough was read to say which nodes starve; if
// not, it says so: how grave it is that no block is left is then not known.
func allocationEvaluated(st *state.State, f *audit.Findings) bool {
	if g := st.FirstMissing(allocationReads); g != nil {
		f.Inconclusive("which nodes starve was not judged: %s", g)
		return false
	}
	return true
}

// cutOff returns the schedulable nodes without a block that a pool selects and
// no other pool can help: those whose pods borrow or wait, and those whose next
// pod would.
func cutOff(st *state.State, p *state.Pool) (now, next []string) {
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if !h.Schedulable || n.Family != p.Family() || !n.NoBlock() || blockMayExist(st, n) {
				continue
			}
			switch {
			case podsCutOff(st, n, p):
				now = append(now, h.Name)
			case p.Automatic && p.SelectsNode(h.Node) && !st.Claimable(state.GeneralPools(n.Pools), h):
				next = append(next, h.Name)
			}
		}
	}
	return now, next
}

// podsCutOff reports whether a pod (or the tunnel) of a node borrows or waits, may
// use the pool, and has no other pool with a block left.
func podsCutOff(st *state.State, n *state.NodeBlockStatus, p *state.Pool) bool {
	concerns := func(w *blocks.Workload) bool {
		pools := st.PodPools(w, n.Host.Node, n.Family)
		for _, q := range pools {
			if q == p {
				return !st.Claimable(pools, n.Host)
			}
		}
		return false
	}
	for _, b := range n.Borrowed {
		if b.Workload != nil && concerns(b.Workload) {
			return true
		}
		if b.Workload == nil && p.Automatic && p.SelectsNode(n.Host.Node) && !st.Claimable(n.Pools, n.Host) {
			return true
		}
	}
	for _, w := range n.Waiting {
		if concerns(w) {
			return true
		}
	}
	return false
}

// blockMayExist reports whether a block that could not be understood may be one
// that the node owns.
func blockMayExist(st *state.State, n *state.NodeBlockStatus) bool {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if g.OwnerKnown && g.Owner.Node() != n.Host.Name {
			continue
		}
		if g.Prefix.IsValid() && blocks.FamilyOf(g.Prefix.Addr()) != n.Family {
			continue
		}
		return true
	}
	return false
}

func reclaimableText(p *state.Pool) string {
	if !p.ReclaimableKnown {
		return "not judged"
	}
	var out []string
	for _, b := range p.Blocks {
		if b.Reclaimability.OK {
			out = append(out, fmt.Sprintf("%s of %s", b.CIDR, state.OwnerText(b.Owner)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return state.List(out)
}
