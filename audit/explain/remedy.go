package explain

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
)

// findingRemedies adds the findings' own remedies, or else their check's general ones. It skips
// findings that a diagnosis covers, and checks that already have a more specific remedy.
func (x *explainer) findingRemedies(s *builder) {
	specific := slices.Clone(s.Remedies)
	for i := range s.Findings {
		f := &s.Findings[i]
		if slices.ContainsFunc(specific, func(o Remedy) bool { return o.Verdict == f.Check }) || x.diagnosed(f) {
			continue
		}
		ways := f.Remedies
		if c, err := checks.All.ByID(f.Check); err == nil && ways == nil {
			ways = c.Remedies
		}
		s.remedies(f.Check, ways)
	}
}

// diagnosed reports whether a diagnosis, with its remedies, covers a finding.
func (x *explainer) diagnosed(f *audit.Finding) bool {
	return slices.ContainsFunc(x.diagnoses, func(d audit.Diagnosis) bool { return slices.Contains(d.Findings, f.Fingerprint) })
}

// remedies adds the remedies that end a verdict, unless a diagnosis already shows them.
func (x *explainer) remedies(s *builder, verdict string, ways []remedies.Remedy) {
	said := func(f audit.Finding) bool { return f.Check == verdict && x.diagnosed(&f) }
	if slices.ContainsFunc(s.Findings, said) || slices.ContainsFunc(s.Related, said) {
		return
	}
	s.remedies(verdict, x.Now(ways))
}

// borrowRemedies adds the ways to end a borrow.
func (x *explainer) borrowRemedies(s *builder, br *state.Borrow) {
	switch {
	case x.vanished(br.User):
	case br.Tunnel: // the diagnosis is about pods
		s.remedies("ip/borrowed", x.BorrowRemedies(br))
	default:
		x.remedies(s, "ip/borrowed", x.BorrowRemedies(br))
	}
}

// nodeRemedy adds the ways to give a node the blocks that it lacks.
func (x *explainer) nodeRemedy(s *builder, h *state.NodeState) {
	if x.FirstMissing([]blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes}) == nil {
		for _, n := range h.BlockStatus {
			if n.NoBlock() && x.DoubtOf(n) == "" && n.Cause != state.CauseNone {
				x.remedies(s, "node/no-block", x.NodeRemedies(n))
			}
		}
	}
	x.findingRemedies(s)
}

// podRemedy adds the ways for a pod to get an address, or one of its own node.
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
		s.remedies("waiting", x.WaitingRemedies(p))
	}
	if h := x.NodeState(w.Node); h != nil {
		for _, n := range h.BlockStatus {
			for _, stuck := range n.Stuck {
				if stuck.Pod == w {
					s.remedies("waiting", x.StuckRemedies(n, stuck))
				}
			}
		}
	}
}

// poolRemedy adds the ways to give a pool free blocks again.
func (x *explainer) poolRemedy(s *builder, p *state.Pool) {
	if root := x.Root(x.RootOfPool(p)); root != nil && x.unread(blocks.Blocks) == "" && p.ServesWorkloads() && p.Slots.Allocatable.IsZero() && !p.Slots.Capacity.IsZero() {
		x.remedies(s, "pool/no-free-blocks", root.Remedies())
	}
	x.findingRemedies(s)
}
