package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// KubeVirt virtual machines with the address persistence of Calico v3.32. A machine keeps
// one address under one handle, on any node and while it is stopped (cni-plugin
// pkg/ipamplugin, libcalico-go lib/ipam/vmipam). During a migration, two pods of the
// machine have the same address. alternateOwnerAttrs, which would name the second pod, is
// not in the CRDs of the Calico release used here; KubeVirt's label joins the two pods.

// vms holds the virtual machines of a storm.
type vms struct {
	client *Client
	all    []*vm
	serial int
	// unsure holds handles whose assignment failed. A write that the API server carried out
	// after its client gave up may have come after their release.
	unsure []string
}

// vm is one virtual machine.
type vm struct {
	name   string
	alone  bool // a VirtualMachineInstance without a VirtualMachine
	node   *node
	pod    string // that runs it; empty while it is stopped
	addr   netip.Addr
	leases []*Lease
	due    time.Time
}

func (v *vm) handle() string { return "k8s-pod-network.vmi." + namespace + "." + v.name }

func (v *vm) resource() testcluster.Resource {
	if v.alone {
		return testcluster.KubeVirt.Resource("virtualmachineinstances")
	}
	return testcluster.KubeVirt.Resource("virtualmachines")
}

const maxVMs = 5

// virtualMachines creates, stops, starts, migrates and deletes virtual machines.
func (w *World) virtualMachines(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(100+r.IntN(400))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		if err := w.stepVM(context.WithoutCancel(ctx), r); err != nil {
			w.troubles.add(err)
		}
	}
}

// stepVM performs one operation on one machine.
func (w *World) stepVM(ctx context.Context, r *rand.Rand) error {
	if len(w.vms.all) < maxVMs {
		return w.createVM(ctx, r)
	}
	i := r.IntN(len(w.vms.all))
	v := w.vms.all[i]
	switch {
	case w.checker.Taken(v.leases):
		w.made.add("VM lost its address to Calico's collector")
		w.vms.all = append(w.vms.all[:i:i], w.vms.all[i+1:]...)
		return w.deleteVM(ctx, v)
	case v.pod != "" && v.node.is() == off:
		return w.crashVM(ctx, v)
	case time.Now().Before(v.due):
		return nil
	}
	v.due = time.Now().Add(time.Duration(1000+r.IntN(6000)) * time.Millisecond)
	switch {
	case r.IntN(8) == 0:
		w.vms.all = append(w.vms.all[:i:i], w.vms.all[i+1:]...)
		return w.deleteVM(ctx, v)
	case v.pod == "":
		return w.runVM(ctx, v, w.nodes[r.IntN(len(w.nodes))])
	case r.IntN(2) == 0:
		return w.runVM(ctx, v, w.nodes[r.IntN(len(w.nodes))]) // a migration
	case v.alone: // cannot be stopped
		return w.crashVM(ctx, v)
	}
	return w.stopVM(ctx, v)
}

// createVM creates a machine and assigns its address.
func (w *World) createVM(ctx context.Context, r *rand.Rand) error {
	w.vms.serial++
	v := &vm{name: fmt.Sprintf("vm%d", w.vms.serial), alone: r.IntN(4) == 0, node: w.nodes[r.IntN(len(w.nodes))]}
	err := persist(ctx, "creating virtual machine "+v.name, func(ctx context.Context) error {
		return exists(w.cluster.Create(ctx, v.resource(), map[string]any{"metadata": map[string]any{"namespace": namespace, "name": v.name}}))
	})
	if err != nil {
		return err
	}
	pod := w.nextLauncher(v)
	if err := w.createLauncher(ctx, v, v.node, pod); err != nil {
		return err
	}
	handle := v.handle()
	addrs, err := w.vms.client.autoAssign(ctx, ipam.AutoAssignArgs{
		HandleID: &handle, Hostname: v.node.name, Num4: 1, Attrs: w.ownerOfVM(v, pod, v.node),
		IntendedUse: apiv3.IPPoolAllowedUseWorkload, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
	})
	if err != nil { // no free address, a deleted node or an unreachable API server
		w.vms.unsure = append(w.vms.unsure, handle)
		return errors.Join(w.deleteLauncher(ctx, pod), w.deleteVM(ctx, v))
	}
	v.addr, v.pod = addrs[0], pod
	use := Use{Machine: v.node.name, Unseen: r.IntN(2) == 0, Collectable: true}
	v.leases, err = w.checker.LeasedAs(ctx, use, "virtual machine "+v.name, handle, addrs, PodKey(namespace, pod))
	if err != nil {
		return err
	}
	w.vms.all = append(w.vms.all, v)
	w.made.add("VM created")
	return w.launched(ctx, v, pod)
}

// runVM starts a stopped machine on a node, or migrates a running one. Handle, address
// and sequence number stay the same.
func (w *World) runVM(ctx context.Context, v *vm, to *node) error {
	before, pod := v.pod, w.nextLauncher(v)
	if to.is() != up {
		return nil
	}
	if err := w.createLauncher(ctx, v, to, pod); err != nil {
		return err
	}
	if before != "" { // both pods have the address for a moment
		if err := w.launched(ctx, v, pod); err != nil {
			return err
		}
	}
	if !w.writeOwner(ctx, v, w.ownerOfVM(v, pod, to)) {
		return w.deleteLauncher(ctx, pod)
	}
	w.checker.Change(v.leases, func(u *Use) { u.Machine = to.name })
	v.pod, v.node = pod, to
	if before != "" {
		w.made.add("VM moved")
		return w.deleteLauncher(ctx, before)
	}
	w.made.add("VM started")
	return w.launched(ctx, v, pod)
}

// stopVM ends a machine's pod. The machine keeps the address, and the owner attributes
// are cleared (CNI DEL of Calico v3.32).
func (w *World) stopVM(ctx context.Context, v *vm) error {
	w.checker.Change(v.leases, func(u *Use) { u.Machine = "" })
	w.writeOwner(ctx, v, map[string]string{})
	pod := v.pod
	v.pod = ""
	w.made.add("VM stopped")
	return w.deleteLauncher(ctx, pod)
}

// crashVM ends a machine whose pod is deleted by force, as on a node that is off. The
// recorded owner stays.
func (w *World) crashVM(ctx context.Context, v *vm) error {
	w.checker.Change(v.leases, func(u *Use) { u.Machine = "" })
	pod := v.pod
	v.pod, v.due = "", time.Now().Add(5*time.Second)
	w.made.add("VM crashed")
	return w.deleteLauncher(ctx, pod)
}

// deleteVM deletes a machine and releases its address.
func (w *World) deleteVM(ctx context.Context, v *vm) error {
	if err := w.checker.Release(ctx, v.leases); err != nil {
		return err
	}
	err := persist(ctx, "deleting virtual machine "+v.name, func(ctx context.Context) error {
		return ignoreNotFound(w.cluster.Delete(ctx, v.resource(), namespace, v.name))
	})
	if v.pod != "" {
		err = errors.Join(err, w.deleteLauncher(ctx, v.pod))
	}
	w.made.add("VM deleted")
	return errors.Join(err, persist(ctx, "giving back the address of virtual machine "+v.name, func(ctx context.Context) error {
		return w.vms.client.releaseHandle(ctx, v.handle())
	}))
}

// nextLauncher returns the name of the next pod that runs a machine.
func (w *World) nextLauncher(v *vm) string {
	w.vms.serial++
	return fmt.Sprintf("virt-launcher-%s-%d", v.name, w.vms.serial)
}

func (w *World) createLauncher(ctx context.Context, v *vm, n *node, pod string) error {
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, Labels: map[string]string{"vm.kubevirt.io/name": v.name}},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "compute", Image: "registry.example.org/virt-launcher:1"}}},
	}
	return persist(ctx, "creating pod "+pod, func(ctx context.Context) error {
		_, err := w.cluster.Kube.CoreV1().Pods(namespace).Create(ctx, object, metav1.CreateOptions{})
		return exists(err)
	})
}

// launched writes the status of a machine's pod.
func (w *World) launched(ctx context.Context, v *vm, pod string) error {
	patch := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%[1]q,"podIPs":[{"ip":%[1]q}]}}`, v.addr)
	return persist(ctx, "writing pod "+pod, func(ctx context.Context) error {
		_, err := w.cluster.Kube.CoreV1().Pods(namespace).Patch(ctx, pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return ignoreNotFound(err)
	})
}

func (w *World) deleteLauncher(ctx context.Context, pod string) error {
	var now int64
	return persist(ctx, "deleting pod "+pod, func(ctx context.Context) error {
		return ignoreNotFound(w.cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	})
}

func (w *World) ownerOfVM(v *vm, pod string, n *node) map[string]string {
	return map[string]string{
		ipam.AttributeNode: n.name, ipam.AttributePod: pod, ipam.AttributeNamespace: namespace,
		ipam.AttributeTimestamp: time.Now().UTC().String(), "vmi-name": v.name,
	}
}

// writeOwner writes the owner of a machine's address into the block's attributes, as
// SetOwnerAttributes of Calico v3.32 does. It raises the block's sequence number but not
// the allocation's. It reports whether the address still belonged to the machine.
func (w *World) writeOwner(ctx context.Context, v *vm, attrs map[string]string) bool {
	block, err := v.addr.Prefix(30)
	if err != nil {
		panic(err)
	}
	found := false
	err = persist(ctx, "writing the owner of "+v.addr.String(), func(ctx context.Context) error {
		found = false
		err := w.cluster.Edit(ctx, testcluster.CRDv1.Resource("ipamblocks"), "", blockName(block), func(object map[string]any) {
			spec := object["spec"].(map[string]any)
			ordinal := int(v.addr.As4()[3] & 3)
			index, allocated := spec["allocations"].([]any)[ordinal].(int64)
			if !allocated {
				return
			}
			entry := spec["attributes"].([]any)[index].(map[string]any)
			if entry["handle_id"] != v.handle() {
				return
			}
			secondary := map[string]any{}
			for key, value := range attrs {
				secondary[key] = value
			}
			entry["secondary"], found = secondary, true
			spec["sequenceNumber"] = spec["sequenceNumber"].(int64) + 1
		})
		return ignoreNotFound(err)
	})
	w.troubles.add(err)
	return found && err == nil
}
