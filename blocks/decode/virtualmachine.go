package decode

import (
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// How objects refer to KubeVirt's virtual machines (kubevirt.io/api core/v1).
const (
	groupVM   = "kubevirt.io"
	versionVM = groupVM + "/v1"
	kindVM    = "VirtualMachine"
	kindVMI   = "VirtualMachineInstance"
	labelVM   = "vm.kubevirt.io/name"
)

var virtualMachines = describe(Kind{
	Resource: blocks.VMs, Names: []string{kindVM}, Foreign: versionVM, Named: true, Optional: true, Namespaced: true,
	keeps: parse.Object("", 0, metaMask(classVM, false)),
}, vmDescriptor(func(s *blocks.Snapshot) *[]blocks.VirtualMachine { return &s.VMs }))

var virtualMachineInstances = describe(Kind{
	Resource: blocks.VMInstances, Names: []string{kindVMI}, Foreign: versionVM, Named: true, Optional: true, Namespaced: true,
	keeps: parse.Object("", 0, metaMask(classVM, false, ownersMask(map[string]*parse.Mask{kindVM: vmOwner}))),
}, vmDescriptor(func(s *blocks.Snapshot) *[]blocks.VirtualMachine { return &s.VMInstances }))

func vmDescriptor(in func(*blocks.Snapshot) *[]blocks.VirtualMachine) descriptor[blocks.VirtualMachine] {
	return descriptor[blocks.VirtualMachine]{json: (*Decoder).virtualMachine, in: in}
}

// ownerRef is an entry of metadata.ownerReferences.
type ownerRef struct {
	version, kind, name, uid []byte
	controller               bool
}

// is reports whether the owner is of the given KubeVirt kind.
func (o ownerRef) is(kind string) bool {
	group, _, _ := strings.Cut(string(o.version), "/")
	return group == groupVM && string(o.kind) == kind
}

// readOwners calls fn for each owner reference. Invalid references are ignored: an object
// without an owner gets more protection, not less.
func readOwners(r *parse.Reader, fn func(ownerRef)) {
	quietly(r, func() {
		r.Array(func(int) {
			var o ownerRef
			r.Object(func(key []byte) {
				switch string(key) {
				case "apiVersion":
					o.version, _ = r.Bytes()
				case "kind":
					o.kind, _ = r.Bytes()
				case "name":
					o.name, _ = r.Bytes()
				case "uid":
					o.uid, _ = r.Bytes()
				case "controller":
					o.controller, _ = r.Boolean()
				}
			})
			fn(o)
		})
	})
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
