package audit

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// sortFindings puts each finding under the subject or beside it. What holds for
// the whole cluster, such as a locked datastore, bears on every subject.
func (x *explainer) sortFindings(s *sheet, about, related func(*Finding) bool) {
	for i := range x.result.Findings {
		f := &x.result.Findings[i]
		switch {
		case about(f):
			s.Findings = append(s.Findings, *f)
		case f.Subject.Kind == KindCluster || related(f):
			s.Related = append(s.Related, *f)
		}
	}
}

func (f *Finding) isAbout(kind, name string) bool {
	return f.Subject.Kind == kind && f.Subject.Name == name
}

// inBlock tells whether a finding is about the block of a CIDR or an affinity to
// it.
func (f *Finding) inBlock(p netip.Prefix) bool {
	return (f.Subject.Kind == KindBlock || f.Subject.Kind == KindAffinity) && f.Subject.CIDR == p.String()
}

// ofAddress tells whether a finding is about one of some addresses.
func (f *Finding) ofAddress(addrs ...netip.Addr) bool {
	return f.Subject.Kind == KindIP && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.String() == f.Subject.IP })
}

func (f *Finding) isAboutPool(pools ...*Pool) bool {
	return slices.ContainsFunc(pools, func(p *Pool) bool { return p != nil && f.isAbout(KindPool, p.Name) })
}

func (x *explainer) addressFindings(s *sheet, a netip.Addr, ref AllocationRef, allocated bool) {
	covering := x.covering(a)
	pools := x.poolsAround(netip.PrefixFrom(a, a.BitLen()))
	var nodes []string
	if n := x.addressNode(a, ref, allocated); n != "" {
		nodes = append(nodes, n)
	}
	handle := ""
	if attr := ref.attributesIf(allocated); attr != nil {
		handle = attr.Handle
	}
	slot := x.slotOf(a)
	for _, b := range covering {
		nodes = append(nodes, b.Owner.Node())
	}
	x.sortFindings(s, func(f *Finding) bool { return f.ofAddress(a) }, func(f *Finding) bool {
		return f.isAboutPool(pools...) || handle != "" && f.isAbout(KindHandle, handle) ||
			f.Subject.Kind == KindNode && slices.Contains(nodes, f.Subject.Name) ||
			slices.ContainsFunc(covering, func(b *Block) bool { return f.inBlock(b.CIDR) }) ||
			len(covering) == 0 && slot.IsValid() && f.inBlock(slot) ||
			f.Subject.Kind == KindConfig && x.borrowOf(ref) != nil
	})
}

func (x *explainer) blockFindings(s *sheet, p netip.Prefix) {
	pools := x.poolsAround(p)
	var owner string
	if b := x.BlockOf(p); b != nil {
		owner = b.Owner.Node()
	}
	x.sortFindings(s, func(f *Finding) bool { return f.inBlock(p) }, func(f *Finding) bool {
		if a, err := netip.ParseAddr(f.Subject.IP); err == nil && f.Subject.Kind == KindIP {
			return p.Contains(a)
		}
		return f.isAboutPool(pools...) || owner != "" && f.isAbout(KindNode, owner)
	})
}

func (x *explainer) nodeFindings(s *sheet, name string) {
	x.sortFindings(s, func(f *Finding) bool {
		return f.isAbout(KindNode, name) || f.Subject.Kind == KindAffinity && f.Subject.Node == name
	}, func(f *Finding) bool { return f.concernsNode([]string{name}) })
}

func (x *explainer) podFindings(s *sheet, w *blocks.Workload, addrs []netip.Addr) {
	if w != nil && w.HostNetwork {
		addrs = nil // the node's address, about which there may be findings of its own
	}
	x.sortFindings(s, func(f *Finding) bool { return f.ofAddress(addrs...) }, func(f *Finding) bool {
		if w == nil || w.HostNetwork || w.Finished() {
			return false
		}
		if f.isAbout(KindNode, w.Node) {
			return true
		}
		n := x.nodeNamed(w.Node)
		if n == nil || f.Subject.Kind != KindPool {
			return false
		}
		return f.isAboutPool(x.PodPools(w, n, blocks.IPv4)...) || f.isAboutPool(x.PodPools(w, n, blocks.IPv6)...)
	})
}

func (x *explainer) poolFindings(s *sheet, p *Pool) {
	x.sortFindings(s, func(f *Finding) bool { return f.isAbout(KindPool, p.Name) },
		func(f *Finding) bool { return f.concernsPool([]string{p.Name}) })
}

func (x *explainer) handleFindings(s *sheet, id string, refs []AllocationRef) {
	addrs := make([]netip.Addr, len(refs))
	for i, r := range refs {
		addrs[i] = r.Addr()
	}
	x.sortFindings(s, func(f *Finding) bool { return f.isAbout(KindHandle, id) }, func(f *Finding) bool { return f.ofAddress(addrs...) })
}
