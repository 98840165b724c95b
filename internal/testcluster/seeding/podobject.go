package seeding

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podObject returns a pod as the scheduler leaves it.
func podObject(p Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations, OwnerReferences: controllerOf(p),
		},
		Spec: corev1.PodSpec{
			NodeName:    p.Node,
			HostNetwork: p.HostNetwork,
			Containers:  []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}},
		},
	}
}

var (
	ofReplicaSet = regexp.MustCompile(`^(.+-[a-z0-9]{8,10})-[a-z0-9]{5}$`)
	ofDaemonSet  = regexp.MustCompile(`^(calico-node)-[a-z0-9]{5}$`)
)

// controllerOf derives a pod's controller from the pod's name.
func controllerOf(p Pod) []metav1.OwnerReference {
	for kind, name := range map[string]*regexp.Regexp{"DaemonSet": ofDaemonSet, "ReplicaSet": ofReplicaSet} {
		if m := name.FindStringSubmatch(p.Name); m != nil {
			sum, yes := sha256.Sum256([]byte(p.Namespace+"/"+m[1])), true
			uid := fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
			return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: m[1], UID: types.UID(uid), Controller: &yes}}
		}
	}
	return nil
}

// waitingStatus returns the status of a pod whose sandbox has no network yet.
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

// runningStatus returns the status of a running, ready pod.
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
