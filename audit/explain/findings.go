package explain

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// sortFindings adds each finding to the subject's own or to the related ones. Findings about the
// whole cluster, such as a locked datastore, are related to every subject.
func (x *explainer) sortFindings(s *builder, about, related func(*audit.Finding) bool) {
	for i := range x.result.Findings {
		f := &x.result.Findings[i]
		switch {
		case about(f):
			s.Findings = append(s.Findings, *f)
		case f.Subject.Kind == state.KindCluster || related(f):
			s.Related = append(s.Related, *f)
		}
	}
}

func isAbout(f *audit.Finding, kind, name string) bool {
	return f.Subject.Kind == kind && f.Subject.Name == name
}

// inBlock reports whether a finding is about the block of a CIDR or an affinity to it.
func inBlock(f *audit.Finding, p netip.Prefix) bool {
	return (f.Subject.Kind == state.KindBlock || f.Subject.Kind == state.KindAffinity) && f.Subject.CIDR == p.String()
}

// ofAddress reports whether a finding is about one of these addresses.
func ofAddress(f *audit.Finding, addrs ...netip.Addr) bool {
	return f.Subject.Kind == state.KindIP && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.String() == f.Subject.IP })
}

func isAboutPool(f *audit.Finding, pools ...*state.Pool) bool {
	return slices.ContainsFunc(pools, func(p *state.Pool) bool { return p != nil && isAbout(f, state.KindPool, p.Name) })
}

func (x *explainer) addressFindings(s *builder, a netip.Addr, ref state.AllocationRef, allocated bool) {
	covering := x.covering(a)
	pools := x.poolsAround(state.IPPrefix(a))
	var nodes []string
	if n := x.addressNode(a, ref, allocated); n != "" {
		nodes = append(nodes, n)
	}
	handle := ""
	if attr := ref.AttributesIf(allocated); attr != nil {
		handle = attr.Handle
	}
	slot := x.SlotOf(a)
	for _, b := range covering {
		nodes = append(nodes, b.Owner.Node())
	}
	x.sortFindings(s, func(f *audit.Finding) bool { return ofAddress(f, a) }, func(f *audit.Finding) bool {
		return isAboutPool(f, pools...) || handle != "" && isAbout(f, state.KindHandle, handle) ||
			f.Subject.Kind == state.KindNode && slices.Contains(nodes, f.Subject.Name) ||
			slices.ContainsFunc(covering, func(b *state.Block) bool { return inBlock(f, b.CIDR) }) ||
			len(covering) == 0 && slot.IsValid() && inBlock(f, slot) ||
			f.Subject.Kind == state.KindConfig && x.borrowOf(ref) != nil
	})
}

func (x *explainer) blockFindings(s *builder, p netip.Prefix) {
	pools := x.poolsAround(p)
	var owner string
	if b := x.BlockOf(p); b != nil {
		owner = b.Owner.Node()
	}
	x.sortFindings(s, func(f *audit.Finding) bool { return inBlock(f, p) }, func(f *audit.Finding) bool {
		if a, err := netip.ParseAddr(f.Subject.IP); err == nil && f.Subject.Kind == state.KindIP {
			return p.Contains(a)
		}
		return isAboutPool(f, pools...) || owner != "" && isAbout(f, state.KindNode, owner)
	})
}

func (x *explainer) nodeFindings(s *builder, name string) {
	x.sortFindings(s, func(f *audit.Finding) bool {
		return isAbout(f, state.KindNode, name) || f.Subject.Kind == state.KindAffinity && f.Subject.Node == name
	}, func(f *audit.Finding) bool { return f.ConcernsNode([]string{name}) })
}

func (x *explainer) podFindings(s *builder, w *blocks.Workload, addrs []netip.Addr) {
	if w != nil && w.HostNetwork {
		addrs = nil // the node's address, about which there may be findings of its own
	}
	x.sortFindings(s, func(f *audit.Finding) bool {
		return ofAddress(f, addrs...) || isAbout(f, state.KindPod, s.Subject.Name)
	}, func(f *audit.Finding) bool {
		if w == nil || w.HostNetwork || w.Finished() {
			return false
		}
		if isAbout(f, state.KindNode, w.Node) {
			return true
		}
		n := x.nodeNamed(w.Node)
		if n == nil || f.Subject.Kind != state.KindPool {
			return false
		}
		return isAboutPool(f, x.PodPools(w, n, blocks.IPv4)...) || isAboutPool(f, x.PodPools(w, n, blocks.IPv6)...)
	})
}

func (x *explainer) poolFindings(s *builder, p *state.Pool) {
	x.sortFindings(s, func(f *audit.Finding) bool { return isAbout(f, state.KindPool, p.Name) },
		func(f *audit.Finding) bool { return f.ConcernsPool([]string{p.Name}) })
}

func (x *explainer) handleFindings(s *builder, id string, refs []state.AllocationRef) {
	addrs := make([]netip.Addr, len(refs))
	for i, r := range refs {
		addrs[i] = r.Addr()
	}
	x.sortFindings(s, func(f *audit.Finding) bool { return isAbout(f, state.KindHandle, id) }, func(f *audit.Finding) bool { return ofAddress(f, addrs...) })
}
