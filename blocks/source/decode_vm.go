package source

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// What tells that something belongs to a virtual machine of KubeVirt's
// (kubevirt.io/api core/v1).
const (
	groupVM   = "kubevirt.io"
	versionVM = groupVM + "/v1"
	kindVM    = "VirtualMachine"
	kindVMI   = "VirtualMachineInstance"
	labelVM   = "vm.kubevirt.io/name"
)

// vmKinds are the kinds that must both be read before a virtual machine that is not
// there is known not to exist.
var vmKinds = []blocks.Resource{blocks.VMs, blocks.VMInstances}

// setVMsKnown sets whether both kinds of virtual machines are known whole, as
// [blocks.Snapshot.VMsKnown] has it, of which known says whether one was read. A gap
// says otherwise.
func setVMsKnown(s *blocks.Snapshot, known func(blocks.Resource) bool) {
	s.VMsKnown = !slices.ContainsFunc(vmKinds, func(r blocks.Resource) bool {
		_, missing := s.Missing(r)
		return missing || !known(r) || len(s.Unreadable(r)) > 0
	})
}

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

func (d *decoder) vm(r *jsonReader)         { d.virtualMachine(r, blocks.VMs) }
func (d *decoder) vmInstance(r *jsonReader) { d.virtualMachine(r, blocks.VMInstances) }

func (d *decoder) protoVM(msg []byte) error { return d.protoVirtualMachine(msg, blocks.VMs) }
func (d *decoder) protoVMInstance(msg []byte) error {
	return d.protoVirtualMachine(msg, blocks.VMInstances)
}

// virtualMachine reads the metadata of a VirtualMachine or VirtualMachineInstance, of
// whole objects or of those of kind PartialObjectMetadata.
func (d *decoder) virtualMachine(r *jsonReader, res blocks.Resource) {
	var v blocks.VirtualMachine
	found := r.object(func(key []byte) {
		if string(key) == "metadata" {
			d.meta(r, &v.Meta, d.vmHooks(&v, res))
		}
	})
	if r.err != nil {
		return
	}
	checkName(r, &v.Meta)
	if !found || v.Name == "" {
		d.gap(res, &v.Meta, firstFault(r))
		return
	}
	d.gapPerFault(res, v.FullName(), r.faults)
	d.addVM(v, res)
}

// protoVirtualMachine reads a PartialObjectMetadata.
func (d *decoder) protoVirtualMachine(msg []byte, res blocks.Resource) error {
	var v blocks.VirtualMachine
	var failed error
	within(&failed, msg, func(f protoField) {
		if f.num != 1 {
			return
		}
		if err := d.protoMeta(f.bytes, &v.Meta, d.vmHooks(&v, res)); err != nil {
			failed = err
		}
	})
	if failed == nil {
		d.addVM(v, res)
	}
	return failed
}

// vmHooks read what the metadata of a virtual machine tell beyond its name.
func (d *decoder) vmHooks(v *blocks.VirtualMachine, res blocks.Resource) metaHooks {
	hooks := metaHooks{noWritten: true, namespace: func(value []byte) { v.Namespace = d.str(value) }}
	if res == blocks.VMInstances {
		hooks.owner = func(o ownerRef) { v.OfVM = v.OfVM || o.is(kindVM) }
	}
	return hooks
}

func (d *decoder) addVM(v blocks.VirtualMachine, res blocks.Resource) {
	if res == blocks.VMs {
		d.out.vms = append(d.out.vms, v)
		return
	}
	d.out.vmInstances = append(d.out.vmInstances, v)
}
