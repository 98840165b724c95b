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

// What a kubelet does for a pod that a scheduler has bound to its node, step by step:
// [Seeder.Pod] does it all at once.

// SetUp has addresses allocated for a new sandbox of a pod and writes them to its
// annotations, as Calico's CNI plugin does when it is told to add a container. A pod
// on the host's network gets none. If there are none to be had the error wraps
// [ErrNoAddress]; after any error nothing is allocated.
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

// Wait says in a pod's status that its containers wait for their network.
func (s *Seeder) Wait(ctx context.Context, pod *corev1.Pod) error {
	return s.podStatus(ctx, pod, waitingStatus(pod))
}

// Run says in a pod's status that it runs and is ready.
func (s *Seeder) Run(ctx context.Context, pod *corev1.Pod, node *corev1.Node, addrs []netip.Addr) error {
	hostIP, ips := nodeAddress(node), texts(addrs)
	if pod.Spec.HostNetwork {
		ips = []string{hostIP}
	}
	return s.podStatus(ctx, pod, runningStatus(pod, hostIP, ips))
}

// TearDown releases the addresses of a pod's sandbox and, if the pod still exists,
// empties its annotations: what Calico's CNI plugin does when it is told to delete a
// container.
func (s *Seeder) TearDown(ctx context.Context, pod *corev1.Pod, sandbox string) error {
	if pod.Spec.HostNetwork {
		return nil
	}
	return unlessDeleted(s.tearDown(ctx, sandboxed(pod, sandbox)))
}

// End removes a pod whose deletion was asked for, and no other of its name.
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

// unlessDeleted is an error unless it says that there is no such pod, or another one of
// its name.
func unlessDeleted(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
