package blocks

import "slices"

// VMKinds are the kinds that must both be read to prove that a virtual machine does not
// exist.
var VMKinds = []Resource{VMs, VMInstances}

// SetVMsKnown sets VMsKnown if both kinds of virtual machines were read completely. known
// reports whether a kind was read; a gap overrides it.
func (s *Snapshot) SetVMsKnown(known func(Resource) bool) {
	s.VMsKnown = !slices.ContainsFunc(VMKinds, func(r Resource) bool {
		_, missing := s.Missing(r)
		return missing || !known(r) || len(s.Unreadable(r)) > 0
	})
	s.NoteUnreadVMs()
}

// ForgetServices drops the gap of Services that could not be listed.
func (s *Snapshot) ForgetServices() {
	s.Gaps = slices.DeleteFunc(slices.Clone(s.Gaps), func(g Gap) bool { return g.Resource == Services && g.Whole() })
}

// SetBudgetsKnown sets BudgetsKnown if budgets were read completely.
func (s *Snapshot) SetBudgetsKnown(read bool) {
	_, missing := s.Missing(Budgets)
	s.BudgetsKnown = read && !missing && !slices.ContainsFunc(s.Gaps, func(g Gap) bool { return g.Resource == Budgets })
}
