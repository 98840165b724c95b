package blocks

import "slices"

// MayBorrow reports whether any node uses an address of another node's block, or owns no
// block, so that its next pod may borrow.
func (s *Snapshot) MayBorrow() bool {
	owners, lengths := map[Prefix]string{}, map[int]bool{}
	owning := map[string]bool{}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		p, node := b.CIDR, b.Owner.Node()
		owners[p], lengths[p.Bits()], owning[node] = node, true, true
		if slices.ContainsFunc(b.Attributes, func(a Attributes) bool { return a.Node != "" && a.Node != node }) {
			return true
		}
	}
	if slices.ContainsFunc(s.Nodes, func(n Node) bool { return !owning[n.Name] }) {
		return true
	}
	for _, w := range s.Workloads {
		for a := range w.Addresses {
			for bits := range lengths {
				p, err := a.Prefix(bits)
				if owner, ok := owners[p]; err == nil && ok && owner != w.Node {
					return true
				}
			}
		}
	}
	return false
}
