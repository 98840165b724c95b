package decode

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

func metaTime(s string) metav1.Time { return metav1.NewTime(at(s).Std()) }

// bothWays decodes Kubernetes objects from protobuf, as the API server sends them, and from
// JSON, as kubectl prints them, and compares the results.
func bothWays(t *testing.T, k *Kind, list runtime.Object) *Objects {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codec := serializer.NewCodecFactory(scheme).CodecForVersions(
		kubeprotobuf.NewSerializer(scheme, scheme), nil, corev1.SchemeGroupVersion, nil)
	var wire bytes.Buffer
	if err := codec.Encode(list, &wire); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	read := func(body []byte, mime string) *Objects {
		out, m, err := readPage(k, body)
		if err != nil {
			t.Fatalf("%s: %v", mime, err)
		}
		if m.Next != "more" || m.Remaining != 7 {
			t.Errorf("%s: list metadata %+v", mime, m)
		}
		return out
	}
	fromWire, fromText := read(wire.Bytes(), protobuf.MediaType), read(text, "application/json")
	diff(t, "protobuf against JSON: gaps", fromText.Gaps, fromWire.Gaps)
	diff(t, "protobuf against JSON", NewSnapshot(fromText), NewSnapshot(fromWire))
	return fromWire
}

func more() metav1.ListMeta {
	n := int64(7)
	return metav1.ListMeta{Continue: "more", RemainingItemCount: &n}
}

func TestPods(t *testing.T) {
	deletion, start := metaTime("2025-11-20T11:00:00Z"), metaTime("2025-11-20T09:00:05Z")
	yes := true
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(),
		Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "cart-1", Namespace: "shop", UID: "u", ResourceVersion: "9", CreationTimestamp: metaTime("2025-11-20T09:00:00Z"),
				Labels: map[string]string{"app": "cart", "vm.kubevirt.io/name": "db-shortened"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "cart"},
					{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "db", UID: "i", Controller: &yes}},
				Annotations: map[string]string{
					"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "cni.projectcalico.org/ipAddrs": `["10.0.0.5"]`, "cni.projectcalico.org/floatingIPs": `["192.0.2.7", ""]`,
					"cni.projectcalico.org/podIP": "10.0.0.5/32", "cni.projectcalico.org/podIPs": "10.0.0.5/32,fd00::5/128",
					"cni.projectcalico.org/containerID": "c1", "cni.projectcalico.org/ipv4pools": `["pool-a", "10.1.0.0/16"]`,
					"k8s.v1.cni.cncf.io/network-status": `[{"name": "k8s-pod-network", "ips": ["10.0.0.5"], "default": true},
						{"name": "shop/storage", "interface": "net1", "ips": ["10.9.0.7/24", "fd09::7"]}]`,
					"k8s.v1.cni.cncf.io/networks": `[{"name": "storage"}, {"name": "lan", "namespace": "lab", "ips": ["10.7.0.1"]}]`, "other": "x",
				},
				ManagedFields: []metav1.ManagedFieldsEntry{{Time: &start}},
			},
			Spec: corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "v"}}}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: "True"}}, Phase: corev1.PodRunning, HostIP: "172.16.0.1", PodIP: "10.0.0.5", StartTime: &start,
				PodIPs: []corev1.PodIP{{IP: "10.0.0.5"}, {IP: "fd00::5"}}},
		}, {
			ObjectMeta: metav1.ObjectMeta{
				Name: "cart-2", Namespace: "shop", DeletionTimestamp: &deletion,
				Annotations: map[string]string{"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": "",
					"k8s.v1.cni.cncf.io/networks-status": `[{"name": "net1", "ips": ["::ffff:10.9.0.8"]}]`, "k8s.v1.cni.cncf.io/networks": " storage@eth1, lab/lan "},
				Labels: map[string]string{"vm.kubevirt.io/name": "web"},
			},
			Spec:   corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "Ready", Status: "False"}}, Phase: corev1.PodRunning, PodIP: "::ffff:10.0.0.6"},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "proxy", Namespace: "kube-system"},
			Spec:       corev1.PodSpec{NodeName: "n1", HostNetwork: true},
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		}},
	}
	p := bothWays(t, KindOf(blocks.Pods), list)
	noGaps(t, p)
	diff(t, "pods", []blocks.Workload{{
		Meta:      blocks.Meta{Name: "cart-1", Pin: blocks.PinOf("u", "9"), Created: at("2025-11-20T09:00:00Z")},
		Namespace: "shop", Node: "n1", Phase: "Running", ContainerID: "c1", Ready: true, HasClaim: true, NoEviction: true, StaticAddress: true, RunsOnce: true,
		Controller:    &blocks.Controller{Kind: "VirtualMachineInstance", Name: "db", UID: "i"},
		StatusIPs:     []netip.Addr{addr("10.0.0.5"), addr("fd00::5")},
		AnnotationIPs: []netip.Addr{addr("10.0.0.5"), addr("fd00::5")},
		Started:       at("2025-11-20T09:00:05Z"),
		Extra: &blocks.Extras{
			VM: "db", NetworkStatus: true,
			NetworkIPs: []netip.Addr{addr("10.0.0.5"), addr("10.9.0.7"), addr("fd09::7")},
			Attached:   []blocks.AttachedAddress{{Network: "shop/storage", Addr: addr("10.9.0.7")}, {Network: "shop/storage", Addr: addr("fd09::7")}},
			Interfaces: []string{"shop/storage"}, AsksNetworks: []string{"shop/storage", "lab/lan"},
			PoolsV4: []string{"pool-a", "10.1.0.0/16"}, StaticIPs: []netip.Addr{addr("10.0.0.5")}, FloatingIPs: []netip.Addr{addr("192.0.2.7")},
		},
	}, {
		Meta:      blocks.Meta{Name: "cart-2", Deleting: at("2025-11-20T11:00:00Z")},
		Namespace: "shop", Node: "n1", Phase: "Running", HasScratch: true, NetworkRemoved: true, StatusIPs: []netip.Addr{addr("10.0.0.6")},
		Extra: &blocks.Extras{VM: "web", NetworkStatus: true, NetworkIPs: []netip.Addr{addr("10.9.0.8")}, Attached: []blocks.AttachedAddress{{Network: "net1", Addr: addr("10.9.0.8")}},
			Interfaces: []string{"net1"}, AsksNetworks: []string{"shop/storage", "lab/lan"}},
	}, {
		Meta: blocks.Meta{Name: "proxy"}, Namespace: "kube-system", Node: "n1", Phase: "Pending", HostNetwork: true,
	}}, all[blocks.Workload](p))
}

func TestPodGaps(t *testing.T) {
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(),
		Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Annotations: map[string]string{
				"cni.projectcalico.org/podIP": "ten", "cni.projectcalico.org/ipv4pools": "pool-a", "cni.projectcalico.org/ipv6pools": "",
			}},
			Status: corev1.PodStatus{PodIP: "bad", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "worse"}}},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": "10.0.0.5"}},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "scheduled", Namespace: "ns"}, Spec: corev1.PodSpec{NodeName: "n"},
		}},
	}
	p := bothWays(t, KindOf(blocks.Pods), list)
	diff(t, "pods", []blocks.Workload{{Meta: blocks.Meta{Name: "p"}, Namespace: "ns", StatusIPs: []netip.Addr{addr("10.0.0.1")},
		Extra: &blocks.Extras{Unreadable: "metadata.annotations[cni.projectcalico.org/podIP]", Rejected: "metadata.annotations[cni.projectcalico.org/ipv4pools]"}},
		{Meta: blocks.Meta{Name: "q"}, Namespace: "ns", StaticAddress: true, Extra: &blocks.Extras{Rejected: "metadata.annotations[cni.projectcalico.org/ipAddrs]"}},
		{Meta: blocks.Meta{Name: "scheduled"}, Namespace: "ns", Node: "n", Extra: &blocks.Extras{Unreadable: "status", Partial: "status"}}}, all[blocks.Workload](p))
	diff(t, "gaps", []blocks.Gap{
		{Resource: blocks.Pods, Name: "ns/p", Field: "metadata.annotations[cni.projectcalico.org/ipv4pools]",
			Reason: `"pool-a" is not a JSON list of pools`, Tolerated: true},
		{Resource: blocks.Pods, Name: "ns/p", Field: "metadata.annotations[cni.projectcalico.org/podIP]", Reason: `"ten" is not an address`, Tolerated: true},
		{Resource: blocks.Pods, Name: "ns/p", Field: "status.podIPs[1].ip", Reason: `"worse" is not an address`, Tolerated: true},
		{Resource: blocks.Pods, Name: "ns/p", Field: "status.podIP", Reason: `"bad" is not an address`, Tolerated: true},
		{Resource: blocks.Pods, Name: "ns/q", Field: "metadata.annotations[cni.projectcalico.org/ipAddrs]", Reason: `"10.0.0.5" is not a JSON list of addresses`, Tolerated: true},
		{Resource: blocks.Pods, Name: "ns/scheduled", Field: "status", Reason: "is missing"},
	}, p.Gaps)
}

func TestNodes(t *testing.T) {
	heartbeat, cordoned := metaTime("2025-11-20T10:00:00Z"), metaTime("2025-11-20T09:00:00Z")
	list := &corev1.NodeList{
		TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: more(),
		Items: []corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n1", UID: "u", ResourceVersion: "5", CreationTimestamp: metaTime("2025-11-01T00:00:00Z"),
				ManagedFields: []metav1.ManagedFieldsEntry{{Time: &heartbeat}, {}, {Manager: "calico-audit", Time: &cordoned}},
				Labels:        map[string]string{"kubernetes.io/os": "linux", "zone": "a"},
				Annotations: map[string]string{
					"projectcalico.org/IPv4Address": "172.16.0.1/24", "projectcalico.org/IPv6Address": "fd01::1/64",
					"projectcalico.org/IPv4IPIPTunnelAddr": "10.0.0.1", "projectcalico.org/IPv4VXLANTunnelAddr": "10.0.0.2",
					"projectcalico.org/IPv6VXLANTunnelAddr": "fd00::2", "projectcalico.org/IPv4WireguardInterfaceAddr": "10.0.0.3",
					"projectcalico.org/IPv6WireguardInterfaceAddr": "fd00::3", "projectcalico.org/ASNumber": "1.1",
					"projectcalico.org/RouteReflectorClusterID": "10.9.9.9", "calico-audit/consolidation": "rehome",
					"projectcalico.org/labels": `{"rack": "r1", "zone": "shadowed"}`,
				},
			},
			Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
				{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule},
				{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
				{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectPreferNoSchedule},
				{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute}}},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"pods": resource.MustParse("110"), "cpu": resource.MustParse("4")},
				Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: heartbeat},
					{Type: "DiskPressure", Status: "False"}},
				Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "172.16.0.1"}, {Type: "InternalIP", Address: "odd"}, {Type: "Hostname", Address: "172.16.0.9"}}},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "win"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows"},
				Allocatable: corev1.ResourceList{"pods": resource.MustParse("1k")},
				Conditions:  []corev1.NodeCondition{{Type: "Ready", Status: "Unknown"}}},
		}},
	}
	p := bothWays(t, KindOf(blocks.Nodes), list)
	noGaps(t, p)
	diff(t, "nodes", []blocks.Node{{
		Meta: blocks.Meta{Name: "n1", Pin: blocks.PinOf("u", "5"), Created: at("2025-11-01T00:00:00Z"),
			Written: at("2025-11-20T10:00:00Z")},
		Labels:        map[string]string{"kubernetes.io/os": "linux", "zone": "a", "rack": "r1"},
		Unschedulable: true, Taints: []blocks.Taint{{Key: "dedicated", Value: "db", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}, Allocatable: blocks.Quantities{"pods": 110_000, "cpu": 4000}, OutOfService: true,
		Tunnels: []blocks.Tunnel{{Type: blocks.TypeIPIP, Addr: addr("10.0.0.1")}, {Type: blocks.TypeVXLAN, Addr: addr("10.0.0.2")},
			{Type: blocks.TypeWireguard, Addr: addr("10.0.0.3")}, {Type: blocks.TypeVXLANv6, Addr: addr("fd00::2")},
			{Type: blocks.TypeWireguardV6, Addr: addr("fd00::3")}},
		Ready: true, Addresses: []blocks.Prefix{prefix("172.16.0.1/24"), prefix("fd01::1/64")}, InternalIPs: []netip.Addr{addr("172.16.0.1")},
		ASNumber: 65537, RouteReflectorID: "10.9.9.9", Ours: "rehome", OursSince: at("2025-11-20T09:00:00Z"),
	}, {
		Meta: blocks.Meta{Name: "win"}, Windows: true, NotReady: true, Allocatable: blocks.Quantities{"pods": 1_000_000},
	}}, all[blocks.Node](p))
}

func TestNodeGaps(t *testing.T) {
	list := &corev1.NodeList{
		TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: more(),
		Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
			"projectcalico.org/IPv4IPIPTunnelAddr": "tunnel", "projectcalico.org/ASNumber": "many",
			"projectcalico.org/IPv4Address": "here", "projectcalico.org/IPv6Address": "", "projectcalico.org/labels": "[]",
		}}}},
	}
	p := bothWays(t, KindOf(blocks.Nodes), list)
	diff(t, "nodes", []blocks.Node{{Meta: blocks.Meta{Name: "n"}}}, all[blocks.Node](p))
	var got []string
	for _, g := range p.Gaps {
		got = append(got, g.String())
	}
	diff(t, "gaps", []string{
		`nodes "n" metadata.annotations[projectcalico.org/ASNumber]: "many" is not an AS number`,
		`nodes "n" metadata.annotations[projectcalico.org/IPv4Address]: "here" is not a CIDR`,
		`nodes "n" metadata.annotations[projectcalico.org/IPv4IPIPTunnelAddr]: "tunnel" is not an address`,
		`nodes "n" metadata.annotations[projectcalico.org/labels]: is not a JSON object of texts`,
	}, got)
}

func TestNamespaces(t *testing.T) {
	list := &corev1.NamespaceList{
		TypeMeta: metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}, ListMeta: more(),
		Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Labels: map[string]string{"team": "b"},
			Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": `["a"]`, "cni.projectcalico.org/ipv6pools": `["b"]`},
		}}},
	}
	p := bothWays(t, KindOf(blocks.Namespaces), list)
	noGaps(t, p)
	diff(t, "namespaces", []blocks.Namespace{{Meta: blocks.Meta{Name: "shop"}, Labels: map[string]string{"team": "b"},
		PoolsV4: []string{"a"}, PoolsV6: []string{"b"}}}, all[blocks.Namespace](p))
}

// A truncated message is an error, never a shorter list.
func TestProtobufCutOff(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	raw, err := (&corev1.PodList{Items: []corev1.Pod{pod, pod}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body := protowire.AppendBytes([]byte("k8s\x00\x12"), raw)
	for n := range body {
		if _, _, err := readPage(KindOf(blocks.Pods), body[:n]); err == nil {
			t.Fatalf("no error for the first %d of %d bytes", n, len(body))
		}
	}
	over := append(protowire.AppendBytes([]byte("k8s\x00\x12"), raw[:len(raw)-1]), raw[len(raw)-1])
	if _, _, err := readPage(KindOf(blocks.Pods), over); err == nil {
		t.Error("no error for a list that ends within its last pod")
	}
	if out, _, err := readPage(KindOf(blocks.Pods), body); err != nil || out.Len() != 2 {
		t.Fatalf("whole body: %d pods, %v", out.Len(), err)
	}
}

// A pod with a malformed volume claim does not decode as a pod with a claim, even on its
// own.
func TestProtobufMalformedClaim(t *testing.T) {
	field := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	volume := field(2, field(10, []byte{0x0a, 0x7f}))
	pod := append(field(1, field(1, []byte("p"))), field(2, field(1, volume))...)
	d := &Decoder{Out: NewObjects(KindOf(blocks.Pods)), Strings: &SharedStrings{}}
	if err := d.One(Object{pod, true}); err == nil {
		t.Error("no error for it")
	}
}

// TestProtobufYears: a time that JSON cannot represent is unknown.
func TestProtobufYears(t *testing.T) {
	for _, seconds := range []int64{1 << 60, -1 << 60, 253402300800} {
		msg := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(seconds))
		if got := protobuf.Time(msg); !got.IsZero() {
			t.Errorf("%d seconds became %s", seconds, got)
		}
	}
	if got := protobuf.Time(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 253402300799)); got.Year() != 9999 {
		t.Errorf("the last second became %s", got)
	}
}

// A response that is not a list, such as a proxy's login page, must not count as an empty
// list.
func TestAnswerThatIsNoList(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"kind": "Status"}`, `{"kind": "IPPoolList"}`, `{"items": []}`, `<html>`, ``, `{"kind":"IPPoolList","items":[{}`,
	} {
		if _, _, err := readPage(KindOf(blocks.Pools), []byte(body)); err == nil {
			t.Errorf("no error for %q", body)
		}
	}
	for _, body := range [][]byte{nil, []byte("k8s\x00"), []byte("<html>")} {
		if _, _, err := readPage(KindOf(blocks.Pods), body); err == nil {
			t.Errorf("no error for protobuf %q", body)
		}
	}

}

// readPage decodes a page of a list.
func readPage(k *Kind, body []byte) (*Objects, ListMeta, error) {
	d := &Decoder{Out: NewObjects(k), Strings: &SharedStrings{}}
	m, err := d.Page(bytes.NewReader(body), func(Object) {})
	return d.Out, m, err
}

// TestVirtualMachineMetadata: metadata in protobuf, metadata in JSON and whole objects
// decode to the same records.
func TestVirtualMachineMetadata(t *testing.T) {
	created := metaTime("2026-01-01T00:00:00Z")
	item := func(name string, owners ...metav1.OwnerReference) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u", ResourceVersion: "7", CreationTimestamp: created,
				OwnerReferences: owners, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &created}}, Labels: map[string]string{"a": "b"}}}
	}
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: more(),
		Items: []metav1.PartialObjectMetadata{
			item("db", metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "db"}),
			item("alone"), item("pooled", metav1.OwnerReference{APIVersion: "acme.example/v1", Kind: "VirtualMachine", Name: "x"}),
		},
	}
	wire, err := list.Marshal()
	must(t, err)
	text, err := json.Marshal(list)
	must(t, err)
	for _, res := range blocks.VMKinds {
		want := []blocks.VirtualMachine{}
		for i, name := range []string{"db", "alone", "pooled"} {
			want = append(want, blocks.VirtualMachine{Namespace: "shop", OfVM: i == 0 && res == blocks.VMInstances,
				Meta: blocks.Meta{Name: name, Pin: blocks.PinOf("u", "7"), Created: blocks.TimeOf(created.Time)}})
		}
		for mime, body := range map[string][]byte{protobuf.MediaType: protowire.AppendBytes([]byte("k8s\x00\x12"), wire), "application/json": text} {
			out, m, err := readPage(KindOf(res), body)
			must(t, err)
			if m.Next != "more" || out.Len() != 3 || len(out.Gaps) > 0 {
				t.Errorf("%s: %+v, %d objects, gaps %v", mime, m, out.Len(), out.Gaps)
			}
			diff(t, mime, want, all[blocks.VirtualMachine](out))
		}
	}
}

// TestVolumesOfTheNode: a pod with a hostPath would miss its files on another node. A DaemonSet's
// pod restarts on its own node.
func TestVolumesOfTheNode(t *testing.T) {
	for kind, want := range map[string]bool{"ReplicaSet": true, "DaemonSet": false} {
		pod := all[blocks.Workload](decodeOne(t, pods, `{"metadata":{"name":"p","namespace":"n","ownerReferences":[{"apiVersion":"apps/v1","kind":"`+kind+`","name":"x","uid":"u","controller":true}]},
			"spec":{"nodeName":"a","volumes":[{"name":"logs","hostPath":{"path":"/var/log"}},{"name":"c","configMap":{}}]},"status":{"phase":"Running"}}`))[0]
		if pod.HasClaim != want || pod.HasScratch {
			t.Errorf("%s: storage of the node %t, want %t; scratch %t", kind, pod.HasClaim, want, pod.HasScratch)
		}
	}
}
