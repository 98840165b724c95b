package blocks

import "slices"

// VirtualMachine is a KubeVirt VirtualMachine or VirtualMachineInstance, of which an
// audit reads the metadata alone. A VirtualMachine owns its addresses running or
// not; an instance of the same name is what runs.
type VirtualMachine struct {
	Meta
	Namespace string
	// OfVM is true for an instance that an owner reference ties to a VirtualMachine.
	// Where that is gone, the instance is on its way out and Calico gives its address up
	// (v3.32, kube-controllers pkg/controllers/node/ipam.go, hasVMOwner); an audit does
	// not, for its guest may run as long as the instance exists.
	OfVM bool
}

// Key names the virtual machine among those of its kind.
func (v *VirtualMachine) Key() Key { return Key{v.Namespace, v.Name} }

// NoteUnreadVMs adds a gap if virtual machines were not read and a block records the address
// of one: no one then knows whether its owner exists.
func (s *Snapshot) NoteUnreadVMs() {
	_, vms := s.Missing(VMs)
	_, instances := s.Missing(VMInstances)
	if s.VMsKnown || vms || instances || len(s.Unreadable(VMs))+len(s.Unreadable(VMInstances)) > 0 {
		return
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			if _, _, isVM := s.Blocks[i].Attributes[j].VMOf(); isVM {
				s.Gaps = append(s.Gaps, Gap{Resource: VMs, Reason: "not read, though blocks record addresses of virtual machines"})
				slices.SortFunc(s.Gaps, CompareGaps)
				return
			}
		}
	}
}
