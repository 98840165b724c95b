package explain

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
)

// findingRemedies adds, for each check with findings, the findings' own remedies or else the
// check's general ones. It skips checks for which the explanation already has a more specific
// remedy or a diagnosis has one.
func (x *explainer) findingRemedies(s *builder) {
	for i := range s.Findings {
		f := &s.Findings[i]
		if slices.ContainsFunc(s.Remedies, func(o Remedy) bool { return o.Verdict == f.Check }) || x.diagnosed(f) {
			continue
		}
		ways := f.Remedies
		if c, err := checks.All.ByID(f.Check); err == nil && len(ways) == 0 {
			ways = c.Remedies
		}
		for _, r := range ways {
			s.remedy(f.Check, "%s: %s", r.Title, r.Effect)
		}
	}
}

// diagnosed reports whether a diagnosis, with its remedies, covers a finding.
func (x *explainer) diagnosed(f *audit.Finding) bool {
	return slices.ContainsFunc(x.diagnoses, func(d audit.Diagnosis) bool { return slices.Contains(d.Findings, f.Fingerprint) })
}

// addressRemedy adds the changes that would end the verdicts on an address.
func (x *explainer) addressRemedy(s *builder, a netip.Addr, users []user, ref state.AllocationRef, allocated bool) {
	defer x.findingRemedies(s)
	if !allocated {
		x.freeRemedy(s, a, users)
		return
	}
	if br := x.borrowOf(ref); br != nil {
		x.borrowRemedies(s, br)
	}
	attr := ref.Attributes()
	if attr == nil || x.FirstMissing(useReads) != nil {
		return
	}
	node := phrase.OrNone(state.NodeOf(attr))
	live := slices.IndexFunc(users, func(u user) bool { return !u.past })
	switch v := x.Classify(ref); {
	case attr.Cooling():
		s.remedy("cooling down", "free again once its cooldown has passed (ipCooldownSeconds of Calico's IPAM configuration), counted from %s", phrase.Time(attr.Extras().Released))
	case attr.WindowsReserved():
		s.remedy("kept back", "reserved as long as the Windows node owns the block")
	case len(x.TunnelsAt(a)) > 0:
		s.remedy("owned", "released when node %s is deleted, or calico-node there takes another tunnel address", x.TunnelsAt(a)[0].Node.Name)
	case !v.Owned:
		s.remedy("ip/leaked", "%s", leakRemedy(x.State, ref))
	case v.Unknown && len(users) == 0:
		s.remedy("ip/unknown-owner", "released by the component that assigned it; neither Calico's collector nor calico-audit does")
	case attr.Tunnel() && x.Vanished(node):
		s.remedy("owned", "nothing owns it any more once the machine of %s is known to be off (calico-audit repair --leaked-ips --terminated %s) and no other address of it is in use", node, phrase.Arg(node))
	case state.UseKindOf(ref.Block, attr) == state.UseVM && !v.Young:
		s.remedy("owned", "released when the virtual machine is deleted")
	case attr.Tunnel():
		s.remedy("owned", "without owner once node %s is deleted", node)
	case live >= 0:
		s.remedy("owned", "released when %s goes: Calico's CNI plugin then releases all addresses of the handle", users[live].what)
	case len(users) > 0:
		s.remedy("owned", "without owner once the object of %s is deleted; if it is still allocated then, it is reported as leaked", users[0].what)
	case !x.PastGrace(state.AssignedAt(ref)):
		s.remedy("owned", "reported as leaked from %s on, unless something names it until then", phrase.Time(x.Due(state.AssignedAt(ref))))
	}
}

// leakRemedy describes the ways to end a leak.
func leakRemedy(st *state.State, ref state.AllocationRef) string {
	const again = "owned again as soon as its owner exists again, or a pod or tunnel names it"
	if text := collector.OfAddress(st, ref).Text(""); text != "" {
		return again + ". Calico's collector, if it runs, " + text + "."
	}
	return again
}

// freeRemedy adds the changes that would end the verdict on an unallocated address.
func (x *explainer) freeRemedy(s *builder, a netip.Addr, users []user) {
	p := x.PoolOf(state.IPPrefix(a))
	if len(users) > 0 || p == nil || x.unread(blocks.Blocks) != "" {
		return
	}
	b := x.CoveringBlock(a)
	switch {
	case x.Reserved.Contains(a):
		s.remedy("reserved", "handed out only where a pod asks for this very address, or once %s no longer covers it", phrase.Each(x.reservedBy(state.IPPrefix(a))))
	case b == nil:
		if _, claimable := x.slotStatus(x.SlotOf(a), p); claimable {
			s.remedy("free", "handed out once its block %s is claimed", x.SlotOf(a))
		}
	case b.Owner == (blocks.Owner{}):
		if x.IPAM.StrictAffinity {
			s.remedy("free", "not handed out any more: its block has no owner, and strict affinity is on")
		} else {
			s.remedy("free", "handed out only to pods that borrow: its block has no owner")
		}
	case b.Owner.Node() != "":
		if x.IPAM.StrictAffinity {
			s.remedy("free", "handed out to pods on %s only: strict affinity is on", b.Owner.Node())
		} else {
			s.remedy("free", "handed out to pods on %s and, where a node can claim no block, to pods that borrow", b.Owner.Node())
		}
	}
}

// remedies adds the remedies that end a verdict, unless a diagnosis already shows them.
func (x *explainer) remedies(s *builder, verdict string, ways []remedies.Remedy) {
	said := func(f audit.Finding) bool { return f.Check == verdict && x.diagnosed(&f) }
	if slices.ContainsFunc(s.Findings, said) || slices.ContainsFunc(s.Related, said) {
		return
	}
	for _, r := range x.Now(ways) {
		s.remedy(verdict, "%s: %s", r.Title, r.Effect)
	}
}

// borrowRemedies adds the ways to end a borrow.
func (x *explainer) borrowRemedies(s *builder, br *state.Borrow) {
	switch h := x.NodeState(br.User); {
	case (h == nil || h.Node == nil) && x.unread(blocks.Nodes) == "":
		s.remedy("ip/borrowed", "ends when the address is released: %s", x.NoNode(br.User))
	case br.VM:
		s.remedy("ip/borrowed", "stays borrowed on purpose: a virtual machine keeps its address wherever it runs")
	case br.Tunnel:
		for _, r := range x.BorrowRemedies(br) {
			s.remedy("ip/borrowed", "%s: %s", r.Title, r.Effect)
		}
	default:
		x.remedies(s, "ip/borrowed", x.BorrowRemedies(br))
	}
}

// nodeRemedy adds the ways to give a node the blocks that it lacks.
func (x *explainer) nodeRemedy(s *builder, h *state.NodeState) {
	defer x.findingRemedies(s)
	if x.vanished(h.Name) && len(h.Blocks) > 0 {
		s.remedy("vanished", "its blocks can be released once they are empty; a new node of the same name takes them over")
	}
	if x.FirstMissing([]blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes}) != nil {
		return
	}
	for _, n := range h.BlockStatus {
		switch {
		case !n.NoBlock() || x.DoubtOf(n) != "":
		case n.Cause == state.CauseNone:
			s.remedy("node/no-block", "it claims an %s block with its next pod", n.Family)
		default:
			x.remedies(s, "node/no-block", x.NodeRemedies(n))
		}
	}
}

// podRemedy adds the changes that would end the verdicts on a pod's addresses.
func (x *explainer) podRemedy(s *builder, w *blocks.Workload, addrs []netip.Addr) {
	defer x.findingRemedies(s)
	if w != nil && w.HostNetwork {
		return
	}
	for _, br := range x.Borrows {
		if slices.Contains(addrs, br.Addr) {
			x.borrowRemedies(s, br)
		}
	}
	if w == nil || !w.Waiting() {
		return
	}
	if p := waiting.Of(x.State).Find(w); p != nil {
		for _, r := range remedies.Of(x.State).WaitingRemedies(p) {
			s.remedy("waiting", "%s: %s", r.Title, r.Effect)
		}
	}
	if h := x.NodeState(w.Node); h != nil {
		for _, n := range h.BlockStatus {
			for _, stuck := range n.Stuck {
				if stuck.Pod != w {
					continue
				}
				for _, r := range x.StuckRemedies(n, stuck) {
					s.remedy("waiting", "%s: %s", r.Title, r.Effect)
				}
			}
		}
	}
}

// poolRemedy adds the ways to give a pool free blocks again.
func (x *explainer) poolRemedy(s *builder, p *state.Pool) {
	defer x.findingRemedies(s)
	if x.unread(blocks.Blocks) != "" || !p.ServesWorkloads() || !p.Slots.Allocatable.IsZero() || p.Slots.Capacity.IsZero() {
		return
	}
	if root := x.Root(x.RootOfPool(p)); root != nil {
		x.remedies(s, "pool/no-free-blocks", root.Remedies())
	} else if !p.ReleasableKnown {
		s.remedy("pool/no-free-blocks", "has blocks to claim again once an empty one is released; whether one could be now is not known")
	}
}
