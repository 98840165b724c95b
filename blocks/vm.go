package blocks

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
