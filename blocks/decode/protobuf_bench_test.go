package decode

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkCoreTypes decodes the pods and nodes of a cluster of 5,000 nodes and 150,000
// pods, in pages of protobuf as the API server encodes them.
func BenchmarkCoreTypes(b *testing.B) {
	podPages, nodePages := podPages(b), nodePages(b)
	var times, heaps float64
	for b.Loop() {
		shared := &SharedStrings{}
		read := func(k *Kind, pages [][]byte, count int) {
			d := &Decoder{Strings: shared, Out: NewObjects(k)}
			d.Out.Grow(count)
			for range count / 500 / len(pages) {
				for _, page := range pages {
					_, err := d.Page(bytes.NewReader(page), func(Object) {})
					check(b, err)
				}
			}
			if d.Out.Len() != count || len(d.Out.Gaps) > 0 {
				b.Fatalf("%d of %d %s, gaps %v", d.Out.Len(), count, k.Resource, d.Out.Gaps)
			}
		}
		took, heap := measure(func() {
			read(pods, podPages, 150_000)
			read(nodes, nodePages, 5_000)
		})
		times += took.Seconds()
		heaps += float64(heap) / (1 << 20)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(times/float64(b.N), "s/read")
	b.ReportMetric(heaps/float64(b.N), "MiB-peak/read")
}

// protoPage encodes a list as the API server does.
func protoPage(b *testing.B, list interface{ Marshal() ([]byte, error) }) []byte {
	b.Helper()
	raw, err := list.Marshal()
	check(b, err)
	head := []byte("k8s\x00\x12")
	n := len(raw)
	for n >= 0x80 {
		head = append(head, byte(n)|0x80)
		n >>= 7
	}
	return append(append(head, byte(n)), raw...)
}

// managed returns managedFields for some managers.
func managed(managers ...string) (out []metav1.ManagedFieldsEntry) {
	at := metav1.NewTime(time.Date(2025, 11, 20, 9, 0, 0, 0, time.UTC))
	for _, m := range managers {
		out = append(out, metav1.ManagedFieldsEntry{Manager: m, Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:cni.projectcalico.org/containerID":{},"f:cni.projectcalico.org/podIP":{}},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}},"f:status":{"f:conditions":{},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{}}}`)})
	}
	return out
}

func podPages(b *testing.B) (pages [][]byte) {
	b.Helper()
	at := metav1.NewTime(time.Date(2025, 11, 20, 9, 0, 0, 0, time.UTC))
	for page := range 10 {
		list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "more"}}
		for i := range 500 {
			n := page*500 + i
			ip := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}).String()
			name := fmt.Sprintf("cart-6d5f8c7b9-%05d", n)
			container := func(c string) corev1.Container {
				return corev1.Container{Name: c, Image: "registry.example.com/shop/" + c + ":1.27.3", ImagePullPolicy: "IfNotPresent",
					Args: []string{"--listen=:8080", "--log-level=info"}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
					Env:           []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}, {Name: "ENVIRONMENT", Value: "production"}},
					Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
					LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Scheme: "HTTP"}}, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3},
					VolumeMounts:  []corev1.VolumeMount{{Name: "kube-api-access-x", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}
			}
			status := func(c string) corev1.ContainerStatus {
				return corev1.ContainerStatus{Name: c, Ready: true, Image: "registry.example.com/shop/" + c + ":1.27.3",
					ImageID: "registry.example.com/shop/" + c + "@sha256:0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f", ContainerID: "containerd://0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f",
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}
			}
			pod := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "cart-6d5f8c7b9-", Namespace: fmt.Sprintf("shop-%d", n%50), UID: "6d5f8c7b-9d1c-4d5e-8f6a-1b2c3d4e5f60",
					ResourceVersion: "123456789", CreationTimestamp: at, Labels: map[string]string{"app": "cart", "pod-template-hash": "6d5f8c7b9", "team": "shop"},
					Annotations: map[string]string{"cni.projectcalico.org/podIP": ip + "/32", "cni.projectcalico.org/podIPs": ip + "/32",
						"cni.projectcalico.org/containerID": fmt.Sprintf("%064d", n), "prometheus.io/scrape": "true"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "cart-6d5f8c7b9", UID: "u"}},
					ManagedFields:   managed("kube-controller-manager", "calico", "kubelet")},
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%04d", n/30), ServiceAccountName: "default", RestartPolicy: "Always", DNSPolicy: "ClusterFirst", SchedulerName: "default-scheduler",
					Containers:  []corev1.Container{container("app"), container("proxy")},
					Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"}}},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "172.16.0.1", PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &at, QOSClass: "Burstable",
					Conditions:        []corev1.PodCondition{{Type: corev1.PodInitialized, Status: "True", LastTransitionTime: at}, {Type: "Ready", Status: "True", LastTransitionTime: at}, {Type: "ContainersReady", Status: "True", LastTransitionTime: at}, {Type: "PodScheduled", Status: "True", LastTransitionTime: at}},
					ContainerStatuses: []corev1.ContainerStatus{status("app"), status("proxy")}},
			}
			list.Items = append(list.Items, pod)
		}
		pages = append(pages, protoPage(b, &list))
	}
	b.Logf("a pod has %d bytes", len(pages[0])/500)
	return pages
}

func nodePages(b *testing.B) [][]byte {
	b.Helper()
	at := metav1.NewTime(time.Date(2025, 11, 20, 9, 0, 0, 0, time.UTC))
	list := corev1.NodeList{}
	for n := range 500 {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", n), UID: "u", ResourceVersion: "5", CreationTimestamp: at,
			Labels: map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/hostname": fmt.Sprintf("node-%04d", n), "topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "amd64"},
			Annotations: map[string]string{"projectcalico.org/IPv4Address": fmt.Sprintf("172.16.%d.%d/16", n>>8, n&255),
				"projectcalico.org/IPv4VXLANTunnelAddr": fmt.Sprintf("10.200.%d.%d", n>>8, n&255), "node.alpha.kubernetes.io/ttl": "0"},
			ManagedFields: managed("kubelet", "calico-node", "kube-controller-manager")}}
		node.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("110"), "cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "ephemeral-storage": resource.MustParse("100Gi")}
		node.Status.Capacity = node.Status.Allocatable
		for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"} {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: c, Status: "True", LastHeartbeatTime: at, LastTransitionTime: at, Reason: "KubeletHas", Message: "kubelet has it"})
		}
		for i := range 30 {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/shop/image-%d@sha256:0f0c8b3c2a4d5e6f0f0c8b3c2a4d5e6f", i), fmt.Sprintf("registry.example.com/shop/image-%d:1.0", i)}, SizeBytes: 1 << 26})
		}
		node.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KernelVersion: "6.1", KubeletVersion: "v1.36.0"}
		list.Items = append(list.Items, node)
	}
	return [][]byte{protoPage(b, &list)}
}
