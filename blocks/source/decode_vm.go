package source

import "strings"

// What tells that something belongs to a virtual machine of KubeVirt's
// (kubevirt.io/api core/v1).
const (
	groupVM = "kubevirt.io"
	kindVM  = "VirtualMachine"
	kindVMI = "VirtualMachineInstance"
	labelVM = "vm.kubevirt.io/name"
)

// ownerRef is an entry of metadata.ownerReferences.
type ownerRef struct{ version, kind, name []byte }

// is reports whether the owner is of a kind of KubeVirt's.
func (o ownerRef) is(kind string) bool {
	group, _, _ := strings.Cut(string(o.version), "/")
	return group == groupVM && string(o.kind) == kind
}

// readOwners calls fn with each owner reference. One that makes no sense names no
// owner, which is no fault: what may not be owned is protected more, not less.
func readOwners(r *jsonReader, fn func(ownerRef)) {
	before := len(r.faults)
	r.array(func(int) {
		var o ownerRef
		r.object(func(key []byte) {
			switch string(key) {
			case "apiVersion":
				o.version, _ = r.str()
			case "kind":
				o.kind, _ = r.str()
			case "name":
				o.name, _ = r.str()
			}
		})
		fn(o)
	})
	r.faults = r.faults[:before]
}
