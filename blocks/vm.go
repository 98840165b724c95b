package blocks

import "slices"

// VirtualMachine is the metadata of a KubeVirt VirtualMachine or VirtualMachineInstance. A
// VirtualMachine owns its addresses even while stopped. The instance of the same name is
// the running guest.
type VirtualMachine struct {
	Meta
	Namespace string
	// OfVM is true for an instance that an owner reference ties to a VirtualMachine. If
	// that VirtualMachine is deleted, Calico releases the address (v3.32, kube-controllers
	// pkg/controllers/node/ipam.go, hasVMOwner). An audit does not, because the guest may
	// run as long as the instance exists.
	OfVM bool
}

// Key identifies the virtual machine among those of its kind.
func (v *VirtualMachine) Key() Key { return Key{v.Namespace, v.Name} }

// HasVM reports whether a sorted list contains a virtual machine.
func HasVM(list []VirtualMachine, namespace, name string) bool {
	_, found := slices.BinarySearchFunc(list, Key{Namespace: namespace, Name: name},
		func(v VirtualMachine, k Key) int { return v.Key().Compare(k) })
	return found
}

// NoteUnreadVMs adds a gap if blocks record addresses of virtual machines but these were
// not read, so that their owners may or may not exist.
func (s *Snapshot) NoteUnreadVMs() {
	_, vms := s.Missing(VMs)
	_, instances := s.Missing(VMInstances)
	if s.VMsKnown || vms || instances || len(s.Unreadable(VMs))+len(s.Unreadable(VMInstances)) > 0 {
		return
	}
	for i := range s.Blocks {
		for j := range s.Blocks[i].Attributes {
			if _, _, isVM := s.Blocks[i].Attributes[j].VMOf(); isVM {
				s.Gaps = append(s.Gaps, Gap{Resource: VMs, Reason: "not read, but blocks record addresses of virtual machines"})
				slices.SortFunc(s.Gaps, CompareGaps)
				return
			}
		}
	}
}
