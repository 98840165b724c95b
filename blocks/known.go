package blocks

import "slices"

// VMKinds are the kinds that must both be read before a virtual machine that is not
// there is known not to exist.
var VMKinds = []Resource{VMs, VMInstances}

// SetVMsKnown sets VMsKnown: whether both kinds of virtual machines were read whole. known
// reports whether a kind was read; a gap outweighs it.
func (s *Snapshot) SetVMsKnown(known func(Resource) bool) {
	s.VMsKnown = !slices.ContainsFunc(VMKinds, func(r Resource) bool {
		_, missing := s.Missing(r)
		return missing || !known(r) || len(s.Unreadable(r)) > 0
	})
	s.NoteUnreadVMs()
}

// SetBudgetsKnown sets BudgetsKnown: whether budgets were read, and read whole.
func (s *Snapshot) SetBudgetsKnown(read bool) {
	_, missing := s.Missing(Budgets)
	s.BudgetsKnown = read && !missing && !slices.ContainsFunc(s.Gaps, func(g Gap) bool { return g.Resource == Budgets })
}
