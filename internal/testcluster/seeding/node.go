package seeding

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node describes a node to create. Only the name is required.
type Node struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	// Unschedulable cordons the node.
	Unschedulable bool
	// AllocatablePods is the maximum number of pods on the node; 0 means the kubelet's
	// default of 110.
	AllocatablePods int
	// IPv4 is the node's address with the prefix length of its subnet. The zero value
	// means the next address of 172.16.0.0/16.
	IPv4 netip.Prefix
	// IPv6 is the node's second address, if any.
	IPv6 netip.Prefix
	// ASNumber is the node's BGP AS if it differs from the cluster's.
	ASNumber string
	// RouteReflectorID is the node's BGP cluster ID, which makes it a route reflector; ""
	// for none.
	RouteReflectorID string
	// NotReady makes the kubelet report that the node is not ready.
	NotReady bool
	// OS is the operating system; "" means linux.
	OS string
}

// Node creates a Node as the kubelet registers it and calico/node annotates it. It
// creates no IPAM objects.
//
// The annotations mirror libcalico-go/lib/backend/k8s/resources/node.go.
func (s *Seeder) Node(ctx context.Context, n Node) error {
	object := nodeObject(n, s.nextNode(), s.version)
	if s.etcd {
		if err := s.etcdNode(ctx, n, object); err != nil {
			return err
		}
	}
	nodes := s.kubelet.CoreV1().Nodes()
	created, err := nodes.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	created.Status = object.Status
	if _, err := nodes.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of node %s: %w", n.Name, err)
	}
	return nil
}

// DeleteNode deletes only a Node. Its blocks, affinities and tunnel addresses stay until
// Calico's garbage collector runs.
func (s *Seeder) DeleteNode(ctx context.Context, name string) error {
	if err := s.Cluster.Kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// LabelNode sets labels of a Node.
func (s *Seeder) LabelNode(ctx context.Context, name string, labels map[string]string) error {
	return s.patchNode(ctx, name, map[string]any{"labels": labels})
}

func (s *Seeder) patchNode(ctx context.Context, name string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err == nil {
		_, err = s.Cluster.Kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the metadata of node %s: %w", name, err)
	}
	return nil
}

// nextNode numbers the nodes, so that their addresses differ.
func (s *Seeder) nextNode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodeCount++
	return s.nodeCount
}

func nodeObject(n Node, ordinal int, version string) *corev1.Node {
	if !n.IPv4.IsValid() {
		ordinal += 10
		addr := netip.AddrFrom4([4]byte{172, 16, byte(ordinal >> 8), byte(ordinal)})
		n.IPv4 = netip.PrefixFrom(addr, 16)
	}
	os := cmp.Or(n.OS, "linux")
	labels := map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: os, corev1.LabelHostname: n.Name,
	}
	maps.Copy(labels, n.Labels)
	annotations := map[string]string{"projectcalico.org/IPv4Address": n.IPv4.String()}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.IPv4.Addr().String()}}
	if n.IPv6.IsValid() {
		annotations["projectcalico.org/IPv6Address"] = n.IPv6.String()
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.IPv6.Addr().String()})
	}
	if n.ASNumber != "" {
		annotations["projectcalico.org/ASNumber"] = n.ASNumber
	}
	if n.RouteReflectorID != "" {
		annotations["projectcalico.org/RouteReflectorClusterID"] = n.RouteReflectorID
	}
	maps.Copy(annotations, n.Annotations)
	addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})

	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods:   *resource.NewQuantity(int64(cmp.Or(n.AllocatablePods, 110)), resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: n.Taints, Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Addresses: addresses,
			Conditions: []corev1.NodeCondition{readyCondition(n.NotReady)},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: os, Architecture: "amd64", KubeletVersion: version,
				ContainerRuntimeVersion: "containerd://2.1.4", KernelVersion: "6.12.0",
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		},
	}
}

func readyCondition(notReady bool) corev1.NodeCondition {
	now := metav1.NewTime(time.Now())
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status", LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if notReady {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", "container runtime is down"
	}
	return c
}

// Namespace creates a namespace, or sets the labels and annotations of an existing one.
// Its pods get addresses from the pools in the annotations
// cni.projectcalico.org/ipv4pools and ipv6pools.
func (s *Seeder) Namespace(ctx context.Context, name string, labels, annotations map[string]string) error {
	namespaces := s.Cluster.Kube.CoreV1().Namespaces()
	_, err := namespaces.Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch, patchErr := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{Labels: labels, Annotations: annotations}})
		if patchErr != nil {
			return patchErr
		}
		_, err = namespaces.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}
