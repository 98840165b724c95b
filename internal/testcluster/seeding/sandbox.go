package seeding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The methods of this file do the kubelet's steps for a pod that is bound to a node.
// [Seeder.Pod] does all of them at once.

// SetUp allocates addresses for a new sandbox of a pod and writes them to its
// annotations, as Calico's CNI plugin does for CNI ADD. A pod on the host network gets
// none. If no address is available, the error wraps [ErrNoAddress]. After an error, no
// address is allocated.
func (s *Seeder) SetUp(ctx context.Context, pod *corev1.Pod, sandbox string) ([]netip.Addr, error) {
	p := sandboxed(pod, sandbox)
	addrs, err := s.allocate(ctx, p)
	if err != nil || len(addrs) == 0 {
		return nil, err
	}
	if err := s.annotateAddresses(ctx, p, addrs); err != nil {
		return nil, errors.Join(err, s.ReleaseHandle(ctx, sandboxHandle(sandbox)))
	}
	return addrs, nil
}

// Wait sets a pod's status to waiting for its network.
func (s *Seeder) Wait(ctx context.Context, pod *corev1.Pod) error {
	return s.podStatus(ctx, pod, waitingStatus(pod))
}

// Run sets a pod's status to running and ready.
func (s *Seeder) Run(ctx context.Context, pod *corev1.Pod, node *corev1.Node, addrs []netip.Addr) error {
	hostIP, ips := nodeAddress(node), texts(addrs)
	if pod.Spec.HostNetwork {
		ips = []string{hostIP}
	}
	return s.podStatus(ctx, pod, runningStatus(pod, hostIP, ips))
}

// TearDown releases the addresses of a pod's sandbox and, if the pod still exists,
// empties its annotations, as Calico's CNI plugin does for CNI DEL.
func (s *Seeder) TearDown(ctx context.Context, pod *corev1.Pod, sandbox string) error {
	if pod.Spec.HostNetwork {
		return nil
	}
	return unlessDeleted(s.tearDown(ctx, sandboxed(pod, sandbox)))
}

// End removes a deleted pod, but not a later pod with the same name.
func (s *Seeder) End(ctx context.Context, pod *corev1.Pod) error {
	var now int64
	err := s.kubelet.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if unlessDeleted(err) != nil {
		return fmt.Errorf("ending pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func sandboxed(pod *corev1.Pod, sandbox string) Pod {
	return Pod{
		Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Annotations: pod.Annotations,
		HostNetwork: pod.Spec.HostNetwork, sandbox: sandbox, uid: pod.UID,
	}
}

// unlessDeleted returns nil if the error means that the pod does not exist or that its
// name belongs to a later pod. Otherwise it returns the error.
func unlessDeleted(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
