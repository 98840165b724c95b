package state

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
)

// evaluateViews compares the host views with IPAM.
func (st *State) evaluateViews() {
	st.Views = hosts.New(st.Snapshot, st.Grace, st.MayBeNode)
	st.evaluateBorrowRoutes()
	st.findForeignBlackholes()
	st.findFreeUses()
	st.findSecondOwners()
	st.countOldLeaks()
	st.Views.Close()
}

// MayBeNode reports whether a node with a name exists or may exist.
func (st *State) MayBeNode(name string) bool { return !st.NodesRead() || !st.Vanished(name) }

// HostEvidence returns what host views prove about an allocation.
func (st *State) HostEvidence(r AllocationRef) hosts.Evidence {
	attr := r.Attributes()
	if attr == nil {
		return hosts.Evidence{Reason: "the owner is not known, because the block contradicts itself"}
	}
	return st.Views.Evidence(r.Addr(), attr, NodeOf(attr), AssignedAt(r).Std())
}

// evaluateBorrowRoutes reads from the owners' views how traffic to borrowed addresses is routed.
func (st *State) evaluateBorrowRoutes() {
	st.fates = map[*Borrow]hosts.Answer{}
	var nodesAt map[netip.Addr][]string
	for _, b := range st.Borrows {
		v := st.Views.Of(b.Owner)
		if v == nil {
			continue
		}
		r, _ := b.Block.Ordinal(b.Addr)
		since := AssignedAt(AllocationRef{b.Block, r}).Later(b.Block.Claimed).Later(b.Block.Created)
		if !st.Views.Proves(v, since.Std(), "the allocation of "+b.Addr.String()) {
			continue
		}
		answer := v.AnswerAt(b.Addr, b.Block.CIDR)
		if nodesAt == nil {
			nodesAt = st.nodesAt()
		}
		if other := elsewhere(nodesAt, answer, b.User); answer.Outcome == hosts.Forwards && other != "" {
			answer.Outcome, answer.Why = hosts.Unclear, fmt.Sprintf("its route leads to %s, which does not use the address", other)
		}
		st.fates[b] = answer
	}
}

// nodesAt returns, in order, the nodes that have the address, as their own or as a tunnel's.
func (st *State) nodesAt() map[netip.Addr][]string {
	out := make(map[netip.Addr][]string, len(st.Nodes))
	for i := range st.Nodes {
		n := &st.Nodes[i]
		for _, p := range n.Addresses {
			out[p.Addr()] = append(out[p.Addr()], n.Name)
		}
		for _, t := range n.Tunnels {
			out[t.Addr] = append(out[t.Addr], n.Name)
		}
	}
	return out
}

// elsewhere names the node that a route leads to, if it does not use the address. A route through
// a router is assumed to lead to the user.
func elsewhere(nodesAt map[netip.Addr][]string, r hosts.Answer, user string) (other string) {
	via, err := netip.ParseAddr(r.Gateway)
	if err != nil {
		return ""
	}
	for _, name := range nodesAt[via] {
		if name == user {
			return ""
		}
		other = name
	}
	return other
}

// HostAnswer returns how the kernel of a borrowed address's owner handles traffic to it, if a
// host view proves it.
func (st *State) HostAnswer(b *Borrow) (hosts.Answer, bool) {
	r, ok := st.fates[b]
	return r, ok
}
