package audit

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoFreeBlocks = Check{
	ID:       "pool/no-free-blocks",
	Title:    "an enabled workload pool has no block left to claim",
	Severity: "critical, error or warning",
	Why: "A node that needs a block now borrows single addresses from other nodes' blocks, whose owners may drop the traffic; under strict affinity its pods get none. " +
		"Plenty of addresses may be free all the same: addresses and blocks run out separately.",
	Confirm: "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity lists who holds the blocks; " +
		"calicoctl ipam show --show-blocks shows how full each one is.",
	Misread: "\"The pool has free addresses, so it is fine\": free addresses inside other nodes' blocks help a node without a block only by borrowing.",
	Fix: "Add a pool (or one with smaller blocks, such as /28 instead of /26), or free empty blocks of nodes that hold several; " +
		"then restart the pods that borrow, so that their node claims a block of its own.",
	Verify: "Start a pod on each node that had no block: kubectl get blockaffinities then shows a block of that node.",
	Never:  "Never delete IPAMBlock objects by hand: that erases the record of addresses that pods still use.",
	Needs:  []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Uses:   append(slices.Clip(starvationReads), ReleaseNeeds...),
	Run: func(st *State, f *Findings) {
		judged := st.starvationJudged(f)
		for _, p := range st.Pools {
			if !p.ServesWorkloads() || !p.Slots.Allocatable.IsZero() {
				continue
			}
			sev, cut, next := Warning, []string(nil), []string(nil)
			if judged {
				cut, next = st.cutOff(p)
			}
			message := fmt.Sprintf("pool %s has none of its %s left to claim; no node that could take pods lacks one", p.Name, pluralCount(p.Slots.Capacity, "block"))
			switch {
			case p.Slots.Capacity.IsZero():
				message = fmt.Sprintf("pool %s is smaller than one of its own blocks (%s, blocks of /%d) and gives none", p.Name, p.CIDR, p.BlockSize)
			case len(cut) > 0:
				sev = Critical
				message = fmt.Sprintf("pool %s has none of its %s left to claim, and pods of %s without a block borrow or wait: %s",
					p.Name, pluralCount(p.Slots.Capacity, "block"), Plural(len(cut), "node"), List(cut))
			case len(next) > 0:
				sev = Error
				message = fmt.Sprintf("pool %s has none of its %s left to claim; the next pod of %s without a block will borrow or fail: %s",
					p.Name, pluralCount(p.Slots.Capacity, "block"), Plural(len(next), "node"), List(next))
			case !judged || !slices.Contains(st.Families, p.Family()):
				message = fmt.Sprintf("pool %s has none of its %s left to claim", p.Name, pluralCount(p.Slots.Capacity, "block"))
			}
			f.Add(Finding{
				Severity: sev, Subject: PoolSubject(p), Pools: poolsOf(p), Nodes: append(cut, next...), Absence: sev > Warning, Message: message,
				Evidence: Evidences(
					"blocks", fmt.Sprintf("%s of %s claimed, %s reserved, %s allocatable", p.Slots.Claimed, p.Slots.Capacity, p.Slots.Reserved, p.Slots.Allocatable),
					"addresses", fmt.Sprintf("%s of %s in use, %s available", p.Addrs.InUse, p.Addrs.Capacity, p.Addrs.Available),
					"nodes borrowing or waiting", List(cut), "nodes next to", List(next),
					"hoarders", listBy("; ", st.Hoarders([]*Pool{p})), "reclaimable blocks", st.reclaimableText(p)),
				Fix: Fix{"look", "calico-audit report -o wide --check node/many-blocks,block/empty --pool " + Arg(p.Name)},
			})
		}
	},
}

// starvationReads is what it takes, beside the pool's own numbers, to say which nodes
// starve.
var starvationReads = []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs}

// starvationJudged tells whether enough was read to say which nodes starve; if
// not, it says so: how grave it is that no block is left is then not known.
func (st *State) starvationJudged(f *Findings) bool {
	if g := st.FirstMissing(starvationReads); g != nil {
		f.Unjudged("which nodes starve was not judged: %s", g)
		return false
	}
	return true
}

// cutOff returns the schedulable nodes without a block that a pool selects and
// no other pool can help: those whose pods borrow or wait, and those whose next
// pod would.
func (st *State) cutOff(p *Pool) (now, next []string) {
	for _, h := range st.Hosts {
		for _, n := range h.Needs {
			if !h.Schedulable || n.Family != p.Family() || !n.NoBlock() || st.blockMayExist(n) {
				continue
			}
			switch {
			case st.podsCutOff(n, p):
				now = append(now, h.Name)
			case p.Automatic && p.SelectsNode(h.Node) && !st.claimable(generalPools(n.Pools), h):
				next = append(next, h.Name)
			}
		}
	}
	return now, next
}

// podsCutOff tells whether a pod (or the tunnel) of a node borrows or waits, may
// use the pool, and has no other pool with a block left.
func (st *State) podsCutOff(n *Need, p *Pool) bool {
	concerns := func(w *blocks.Workload) bool {
		pools := st.PodPools(w, n.Host.Node, n.Family)
		for _, q := range pools {
			if q == p {
				return !st.claimable(pools, n.Host)
			}
		}
		return false
	}
	for _, b := range n.Borrowed {
		if b.Workload != nil && concerns(b.Workload) {
			return true
		}
		if b.Workload == nil && p.Automatic && p.SelectsNode(n.Host.Node) && !st.claimable(n.Pools, n.Host) {
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

// generalPools leaves out pools that only some namespaces may use, unless there
// are no others: they do not help pods of which nothing is known yet.
func generalPools(ps []*Pool) []*Pool {
	var out []*Pool
	for _, p := range ps {
		if p.ServesAllNamespaces() {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return ps
	}
	return out
}

// blockMayExist tells whether a block that could not be understood may be one
// that the node owns.
func (st *State) blockMayExist(n *Need) bool {
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

func (st *State) reclaimableText(p *Pool) string {
	if !p.ReclaimableKnown {
		return "not judged"
	}
	var out []string
	for _, b := range p.Blocks {
		if b.Release.OK {
			out = append(out, fmt.Sprintf("%s of %s", b.CIDR, OwnerText(b.Owner)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return List(out)
}

func OwnerText(o blocks.Owner) string {
	if o == (blocks.Owner{}) {
		return "nobody"
	}
	if n := o.Node(); n != "" {
		return n
	}
	return o.String()
}
