package files

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// vmDump is a dump of two virtual machines and of an instance without one. One machine is
// stopped, the other migrates to another node.
const vmDump = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: machine-a}, status: {}}
- {apiVersion: v1, kind: Node, metadata: {name: machine-b}, status: {}}
- {apiVersion: crd.projectcalico.org/v1, kind: BlockAffinityList, items: []}
- {apiVersion: crd.projectcalico.org/v1, kind: IPAMHandleList, items: []}
- {apiVersion: crd.projectcalico.org/v1, kind: IPAMConfigList, items: []}
- {apiVersion: crd.projectcalico.org/v1, kind: BGPConfigurationList, items: []}
- {apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: golden-pool}, spec: {cidr: 10.64.0.0/16, blockSize: 30}}
- apiVersion: crd.projectcalico.org/v1
  kind: IPAMBlock
  metadata: {name: 10-64-0-0-30}
  spec:
    cidr: 10.64.0.0/30
    affinity: host:machine-a
    allocations: [0, 1, 2, null]
    unallocated: [3]
    attributes:
    - handle_id: acme-net.vmi.shopping.oracle-db.main
      secondary: {namespace: shopping, pod: virt-launcher-src, node: machine-a, vmi-name: oracle-db.main, vmi-uid: 1a-uid, vm-uid: 2b-uid}
      alternateOwnerAttrs: {namespace: shopping, pod: virt-launcher-dst, node: machine-b, vmi-name: oracle-db.main, vmim-uid: 3c-uid, future: acme-secret}
    - {handle_id: acme-net.vmi.shopping.stopped-one}
    - {handle_id: acme-net.vmi._hashofsomething}
- apiVersion: v1
  kind: Pod
  metadata:
    name: virt-launcher-src
    namespace: shopping
    labels: {vm.kubevirt.io/name: oracle-db-main, app: acme-app}
    ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: oracle-db.main, uid: 1a-uid}]
    annotations:
      k8s.v1.cni.cncf.io/network-status: '[{"name": "acme-net", "ips": ["10.64.0.0"]}, {"name": "shopping/backup-net", "interface": "net1", "ips": ["10.9.0.1", "garbled"]}]'
  spec: {nodeName: machine-a}
  status: {phase: Running, podIP: 10.64.0.0}
- {apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: oracle-db.main, namespace: shopping, uid: 2b-uid}, spec: {acme: secret-spec}}
- {apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: stopped-one, namespace: shopping}}
- apiVersion: kubevirt.io/v1
  kind: VirtualMachineInstance
  metadata: {name: oracle-db.main, namespace: shopping, uid: 1a-uid, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: oracle-db.main, uid: 2b-uid}]}
- {apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: loose-instance, namespace: shopping}}
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dump.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Saving a dump keeps its virtual machines.
func TestVirtualMachinesOfFiles(t *testing.T) {
	before, after, path := recorded(t, SaveOptions{}, writeFile(t, vmDump))
	sameSnapshot(t, "saved", before, after)
	vm := func(name, uid string, ofVM bool) blocks.VirtualMachine {
		return blocks.VirtualMachine{Meta: blocks.Meta{Name: name, Pin: blocks.PinOf(uid, "")}, Namespace: "shopping", OfVM: ofVM}
	}
	diff(t, "virtual machines", []blocks.VirtualMachine{vm("oracle-db.main", "2b-uid", false), vm("stopped-one", "", false)}, after.VMs)
	diff(t, "instances", []blocks.VirtualMachine{vm("loose-instance", "", false), vm("oracle-db.main", "1a-uid", true)}, after.VMInstances)
	if !after.VMsKnown || !after.Complete() || len(after.Gaps) != 1 || !after.Gaps[0].Tolerated {
		t.Errorf("known %t, gaps %+v", after.VMsKnown, after.Gaps)
	}
	pod := after.Workloads[0]
	diff(t, "the pod's addresses", []netip.Addr{addr("10.9.0.1"), addr("10.64.0.0")}, pod.Extras().NetworkIPs)
	if pod.Extras().VM != "oracle-db.main" || pod.Extras().Unreadable == "" {
		t.Errorf("the pod runs %q, and cannot be read at %q", pod.Extras().VM, pod.Extras().Unreadable)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	for _, kept := range []string{"secret-spec", "acme-app", "ReplicaSet"} {
		if bytes.Contains(text, []byte(kept)) {
			t.Errorf("the saved snapshot holds %q", kept)
		}
	}
}

// TestVirtualMachinesKnown: a missing virtual machine is known not to exist only if the
// files hold both kinds.
func TestVirtualMachinesKnown(t *testing.T) {
	cut := func(kinds ...string) string {
		var out []string
		for part := range strings.SplitSeq(vmDump, "\n- ") {
			if !slices.ContainsFunc(kinds, func(k string) bool {
				return strings.Contains(part, "kind: "+k+",") || strings.Contains(part, "kind: "+k+"\n")
			}) {
				out = append(out, part)
			}
		}
		return strings.Join(out, "\n- ")
	}
	info := func(resources, gaps string) string {
		return "---\n" + `{apiVersion: calico-audit/v1alpha1, kind: SnapshotInfo, takenAt: "2026-01-02T03:04:05Z", datastore: kubernetes, counts: {}, resources: [` +
			resources + `], gaps: [` + gaps + "]}\n---\n"
	}
	// The other objects are not counted, which only causes gaps of their own kinds.
	const end = "\n---\n{apiVersion: calico-audit/v1alpha1, kind: SnapshotEnd, takenAt: \"2026-01-02T03:04:05Z\", objects: 0}\n"
	bare := cut("VirtualMachine", "VirtualMachineInstance")
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"both":                        {vmDump, true},
		"instances alone":             {cut("VirtualMachine"), false},
		"virtual machines alone":      {cut("VirtualMachineInstance"), false},
		"neither":                     {bare, false},
		"a snapshot with both":        {info("virtualmachines, virtualmachineinstances", "") + bare + end, true},
		"a snapshot with one of both": {info("virtualmachines", "") + bare + end, false},
		"one that is cut off":         {info("virtualmachines, virtualmachineinstances", "") + bare, false},
		"an older snapshot":           {info("pods, nodes", "") + bare + end, false},
		"one that was forbidden":      {info("virtualmachines, virtualmachineinstances", "{resource: virtualmachines, reason: 'forbidden: x'}") + bare + end, false},
		"one without a name":          {vmDump + "- {apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {namespace: shopping}}\n", false},
		"another version":             {strings.ReplaceAll(vmDump, "kubevirt.io/v1, kind: VirtualMachine,", "kubevirt.io/v1alpha3, kind: VirtualMachine,"), false},
	} {
		s, _ := read(t, writeFile(t, c.text))
		if s.VMsKnown != c.want {
			t.Errorf("%s: known %t, %d virtual machines, %d instances, gaps %v", name, s.VMsKnown, len(s.VMs), len(s.VMInstances), s.Gaps)
		}
	}
}

// A saved reading lists virtual machines as read, even if there are none, only if they
// were.
func TestSavedVirtualMachinesKnown(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := recorder(t)
		path, _ := save(t, r, &blocks.Snapshot{Cluster: blocks.Cluster{Live: true, TakenAt: at("2026-01-01T00:00:00Z")}, VMsKnown: known}, SaveOptions{})
		text, err := os.ReadFile(path)
		must(t, err)
		for _, res := range blocks.VMKinds {
			if bytes.Contains(text, []byte(`"`+string(res)+`"`)) != known {
				t.Errorf("known %t, saved as %s", known, text)
			}
		}
	}
}

// TestAnonymizedVirtualMachines: no name of a virtual machine survives, and related objects
// stay related.
func TestAnonymizedVirtualMachines(t *testing.T) {
	before, s, path := recorded(t, SaveOptions{Anonymize: true}, writeFile(t, vmDump))
	text, err := os.ReadFile(path)
	must(t, err)
	for _, private := range []string{"machine-", "golden", "acme", "shopping", "oracle", "stopped", "loose", "launcher", "backup", "net1", "hashof", "1a-uid", "2b-uid", "3c-uid", "secret", "garbled"} {
		if bytes.Contains(text, []byte(private)) {
			t.Errorf("%q is named in\n%s", private, text)
		}
	}
	if !s.VMsKnown || len(s.VMs) != 2 || len(s.VMInstances) != 2 || len(s.Gaps) != len(before.Gaps) || !s.Complete() {
		t.Fatalf("known %t, virtual machines %+v and %+v, gaps %v", s.VMsKnown, s.VMs, s.VMInstances, s.Gaps)
	}
	running, stopped, instance, pod := s.VMs[0], s.VMs[1], s.VMInstances[1], s.Workloads[0]
	if running.Key() != instance.Key() || !instance.OfVM || s.VMInstances[0].OfVM || s.VMInstances[0].Name == running.Name {
		t.Errorf("virtual machines %+v, instances %+v", s.VMs, s.VMInstances)
	}
	a := s.Blocks[0].Attributes
	owner := func(i int) string {
		namespace, name, isVM := blocks.VMOfHandle(a[i].Handle)
		if !isVM {
			t.Errorf("%q is no virtual machine's handle", a[i].Handle)
		}
		return namespace + "/" + name
	}
	if owner(0) != running.Key().String() || owner(1) != stopped.Key().String() || owner(2) != "/" {
		t.Errorf("handles %q, %q, %q for %q, %q and a hashed one", a[0].Handle, a[1].Handle, a[2].Handle, running.Key().String(), stopped.Key().String())
	}
	if alt := a[0].Extras().Alternate; a[0].Extras().VMI != running.Name || alt == nil || alt.Extras().VMI != running.Name || alt.Node != s.Nodes[1].Name || a[0].Node != s.Nodes[0].Name {
		t.Errorf("attributes %+v with %+v", a[0], alt)
	}
	if a[0].Pod != pod.Name || a[0].Namespace != pod.Namespace || pod.Extras().VM != running.Name || pod.Extras().Unreadable == "" {
		t.Errorf("pod %+v of %+v", pod, a[0])
	}
	diff(t, "the pod's addresses", before.Workloads[0].Extras().NetworkIPs, pod.Extras().NetworkIPs)
}
