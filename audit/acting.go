package audit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// The methods of this file are the verdicts of checks for those who act on them:
// what a finding does not rest on, a repair must not rest on either.

// FirstMissing returns the first of some reads that is missing as a whole, or nil.
func (st *State) FirstMissing(rs []blocks.Resource) *blocks.Gap { return st.firstMissing(rs) }

// ReleaseNeeds are the reads without which no block may be called releasable.
func ReleaseNeeds() []blocks.Resource { return slices.Clone(releaseNeeds) }

// UnrecordedUser names a live pod or a tunnel that uses an address of a CIDR in
// which no block records an allocation; "" if there is none.
func (st *State) UnrecordedUser(p netip.Prefix) string { return st.unrecordedUser(p) }

// HostUsesIn returns where host views show addresses of a CIDR, whatever the age of
// the view.
func (st *State) HostUsesIn(p netip.Prefix) []HostUse {
	var out []HostUse
	all := st.kernels.uses
	i, _ := slices.BinarySearchFunc(all, p.Addr(), func(u hostUse, a netip.Addr) int { return u.addr.Compare(a) })
	for ; i < len(all) && p.Contains(all[i].addr); i++ {
		out = append(out, st.exported(all[i]))
	}
	return out
}

// BlockMayCover tells whether a block that could not be understood may be the one
// of a CIDR or hold a part of it.
func (st *State) BlockMayCover(p netip.Prefix) bool { return st.blockMayCover(p) }

// AffinityMayExist tells whether an affinity that could not be understood may be a
// host's for a block.
func (st *State) AffinityMayExist(b *Block, host string) bool { return st.affinityMayExist(b, host) }

// HandleMayBeUsed tells whether a block that could not be understood, or that
// contradicts itself, may refer to a handle.
func (st *State) HandleMayBeUsed(h *blocks.Handle) bool { return st.handleMayBeUsed(h) }

// OldEnough tells whether an object was made and last written at least the grace
// ago; one that carries no time counts as old.
func (st *State) OldEnough(m blocks.Meta) bool { return st.oldEnough(m) }

// Settled tells whether a time lies at least the grace back; the zero time does.
func (st *State) Settled(t time.Time) bool { return st.settled(t) }

// Vanished tells whether a host is no node, as far as nodes could be read.
func (st *State) Vanished(host string) bool { return st.vanished(host) }

// UnreadableNode tells whether a node exists but could not be understood.
func (st *State) UnreadableNode(name string) bool { return st.unreadableNode(name) }

// UnreadPod returns a pod that could not be understood at all, and whether there
// is one. It may name any address.
func (st *State) UnreadPod() (string, bool) { return st.podUnread() }

// AssignedAt returns when an address was assigned, as far as is known.
func AssignedAt(r AllocationRef) time.Time { return assignedAt(r) }

// Miscounts says for which blocks a handle's count is not the number of addresses
// recorded under it, and returns the counts as they should be, in CIDR order.
func (st *State) Miscounts(h *blocks.Handle) (wrong []string, right []blocks.HandleCount) {
	refs := st.HandleRefs(h.ID)
	have := map[netip.Prefix]int{}
	for _, r := range refs {
		have[r.Block.CIDR]++
	}
	for c, n := range have {
		right = append(right, blocks.HandleCount{CIDR: c, Count: n})
	}
	slices.SortFunc(right, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return miscounts(h, refs), right
}

// Unused returns how many addresses of a block could still be assigned.
func (st *State) Unused(b *Block) int { return b.unused(st.reserved) }

// PoolsAtIssue returns the pools that a node could claim a block from: those of
// the pods that borrow or wait or, where there are none, those that serve any pod.
func (st *State) PoolsAtIssue(n *Need) []*Pool { return st.poolsAtIssue(n) }

// NeedsBlocks is true if the node's next pod would have to come from a new block
// or from a borrowed address, and there is no block to be had.
func (n *Need) NeedsBlocks() bool { return n.needsBlocks() }

// RejectedSettings says why Calico rejects a combination of IPAM settings; "" if
// it does not.
func RejectedSettings(c blocks.IPAMConfig) string { return rejectedSettings(&c) }

// The subjects of findings, for those who speak of the same things.

// PoolSubject is a pool as a subject.
func PoolSubject(p *Pool) Subject { return poolSubject(p) }

// NodeSubject is a node as a subject.
func NodeSubject(name string) Subject { return nodeSubject(name) }

// BlockSubject is a block as a subject.
func BlockSubject(b *Block) Subject { return blockSubject(b) }

// AffinitySubject is an affinity as a subject.
func AffinitySubject(a *blocks.Affinity) Subject { return affinitySubject(a) }

// IPSubject is an address as a subject, with the node that uses it.
func IPSubject(a netip.Addr, node string) Subject { return ipSubject(a, node) }

// HandleSubject is a handle as a subject.
func HandleSubject(id string) Subject { return handleSubject(id) }

// ConfigSubject is the IPAM configuration as a subject.
func ConfigSubject() Subject { return configSubject() }

// ClusterSubject is the whole cluster as a subject.
func ClusterSubject(st *State) Subject { return clusterSubject(st) }

// Words for texts.

// Plural writes a number with its noun: "1 block", "2 blocks".
func Plural(n int, noun string) string { return plural(n, noun) }

// List joins words by commas, counting what is beyond ten.
func List(words []string) string { return list(words) }

// OwnerText names an owner: a node by its name, "nobody" where there is none.
func OwnerText(o blocks.Owner) string { return ownerText(o) }

// Arg writes a name for use in a command line, quoted where that is needed.
func Arg(name string) string { return arg(name) }
