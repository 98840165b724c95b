package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// How objects refer to KubeVirt's virtual machines (kubevirt.io/api core/v1).
const (
	versionVM = blocks.GroupKubeVirt + "/v1"
	kindVM    = "VirtualMachine"
	kindVMI   = "VirtualMachineInstance"
	labelVM   = "vm.kubevirt.io/name"
)

var virtualMachines = describe(Kind{
	Resource: blocks.VMs, Names: []string{kindVM}, Foreign: versionVM, Named: true, Optional: true, Namespaced: true,
	keeps: parse.Object("", 0, keep.Meta(keep.VM, false)),
}, vmDescriptor(func(s *blocks.Snapshot) *[]blocks.VirtualMachine { return &s.VMs }))

var virtualMachineInstances = describe(Kind{
	Resource: blocks.VMInstances, Names: []string{kindVMI}, Foreign: versionVM, Named: true, Optional: true, Namespaced: true,
	keeps: parse.Object("", 0, keep.Meta(keep.VM, false, keep.OwnerReferences(map[string]*parse.Mask{kindVM: keep.OfVM}))),
}, vmDescriptor(func(s *blocks.Snapshot) *[]blocks.VirtualMachine { return &s.VMInstances }))

func vmDescriptor(in func(*blocks.Snapshot) *[]blocks.VirtualMachine) descriptor[blocks.VirtualMachine] {
	return descriptor[blocks.VirtualMachine]{json: (*Decoder).virtualMachine, in: in}
}

// virtualMachine decodes the metadata of a VirtualMachine or VirtualMachineInstance, from
// whole objects or PartialObjectMetadata.
func (d *Decoder) virtualMachine(r *parse.Reader, v *blocks.VirtualMachine) bool {
	d.object(r, &v.Meta, metaHooks{noWritten: true, owner: func(o ownerRef) {
		v.OfVM = v.OfVM || d.Out.Kind.Resource == blocks.VMInstances && o.is(kindVM)
	}}, nil, nil)
	v.Namespace = d.inNamespace
	return d.whole(r, &v.Meta, anywhere)
}
