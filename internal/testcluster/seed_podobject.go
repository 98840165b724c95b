package testcluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podObject is a pod as the scheduler leaves it.
func podObject(p Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations,
		},
		Spec: corev1.PodSpec{
			NodeName:    p.Node,
			HostNetwork: p.HostNetwork,
			Containers:  []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}},
		},
	}
}

// waitingStatus is the status of a pod whose sandbox has no network yet.
func waitingStatus(pod *corev1.Pod) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:      corev1.PodPending,
		StartTime:  now(),
		Conditions: podConditions(corev1.ConditionFalse, "ContainersNotReady"),
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}},
	}
}

// runningStatus is the status of a pod that is up.
func runningStatus(pod *corev1.Pod, hostIP string, ips []string) corev1.PodStatus {
	started := now()
	status := corev1.PodStatus{
		Phase:      corev1.PodRunning,
		HostIP:     hostIP,
		HostIPs:    []corev1.HostIP{{IP: hostIP}},
		PodIP:      ips[0],
		StartTime:  started,
		Conditions: podConditions(corev1.ConditionTrue, ""),
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *started}},
		}},
	}
	for _, ip := range ips {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	return status
}

func podConditions(ready corev1.ConditionStatus, reason string) []corev1.PodCondition {
	return []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: *now()},
		{Type: corev1.PodReady, Status: ready, Reason: reason, LastTransitionTime: *now()},
	}
}

func now() *metav1.Time {
	t := metav1.NewTime(time.Now())
	return &t
}

func nodeAddress(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
