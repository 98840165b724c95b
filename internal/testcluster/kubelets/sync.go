package kubelets

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// sync moves a pod one step further in its life.
func (k *Kubelets) sync(ctx context.Context, id podID) error {
	object, exists, err := k.pods.GetByKey(id.name.String())
	if err != nil {
		return err
	}
	pod, _ := object.(*corev1.Pod)
	if !exists || pod.UID != id.uid {
		return k.vanished(ctx, id)
	}
	object, exists, err = k.nodes.GetByKey(pod.Spec.NodeName)
	if err != nil || !exists {
		return err // a deleted node has no kubelet
	}
	box := k.sandbox(pod)
	box.pod = pod
	switch {
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, id, box)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return k.down(ctx, box)
	case box.running:
		return nil
	case box.up.IsZero():
		return k.setUp(ctx, id, box)
	}
	if left := k.opts.StartUp - time.Since(box.up); left > 0 {
		k.queue.AddAfter(id, left)
		return nil
	}
	if err := k.seeder.Run(ctx, pod, object.(*corev1.Node), box.addrs); err != nil {
		return err
	}
	box.running = true
	return nil
}

// sandbox returns the record of a pod. If the pod already ran before these kubelets started, and
// no earlier ones are known, its annotations and status provide the record.
func (k *Kubelets) sandbox(pod *corev1.Pod) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	box := k.sandboxes[pod.UID]
	if box != nil {
		return box
	}
	box = &sandbox{id: k.newID(pod.UID)}
	k.sandboxes[pod.UID] = box
	if k.restarts == 0 {
		box.id, box.running = cmp.Or(pod.Annotations[conversion.AnnotationContainerID], box.id), pod.Status.PodIP != ""
		if annotated := pod.Annotations[conversion.AnnotationPodIPs]; annotated != "" {
			box.up = time.Now()
			for text := range strings.SplitSeq(annotated, ",") {
				if prefix, err := netip.ParsePrefix(text); err == nil {
					box.addrs = append(box.addrs, prefix.Addr())
				}
			}
		}
	}
	return box
}

func (k *Kubelets) setUp(ctx context.Context, id podID, box *sandbox) error {
	// The CNI plugin holds a lock of its machine while it allocates.
	lock := k.lock(box.pod.Spec.NodeName)
	lock.Lock()
	addrs, err := k.seeder.SetUp(ctx, box.pod, box.id)
	lock.Unlock()
	if errors.Is(err, seeding.ErrNoAddress) {
		k.queue.AddAfter(id, k.opts.Retry)
		if box.waiting {
			return nil
		}
		err = k.seeder.Wait(ctx, box.pod)
		box.waiting = err == nil
		return err
	}
	if err != nil {
		return err
	}
	box.addrs, box.up = addrs, time.Now()
	k.queue.AddAfter(id, k.opts.StartUp)
	return nil
}

func (k *Kubelets) lock(node string) *sync.Mutex {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks[node] == nil {
		k.locks[node] = &sync.Mutex{}
	}
	return k.locks[node]
}

// end removes a deleted pod after its grace period.
func (k *Kubelets) end(ctx context.Context, id podID, box *sandbox) error {
	if box.ended {
		return nil // other components must still remove their finalizers
	}
	if box.ending.IsZero() {
		box.ending = time.Now()
	}
	grace := k.opts.Grace
	if own := box.pod.DeletionGracePeriodSeconds; own != nil {
		grace = min(grace, time.Duration(*own)*time.Second)
	}
	if left := grace - time.Since(box.ending); left > 0 {
		k.queue.AddAfter(id, left)
		return nil
	}
	if err := k.down(ctx, box); err != nil {
		return err
	}
	err := k.seeder.End(ctx, box.pod)
	box.ended = err == nil
	return err
}

// down tears a pod's network down once.
func (k *Kubelets) down(ctx context.Context, box *sandbox) error {
	if box.down {
		return nil
	}
	err := k.seeder.TearDown(ctx, box.pod, box.id)
	box.down = err == nil
	return err
}

// vanished cleans up after a pod that was removed from the API server before its end, for
// example by a forced deletion.
func (k *Kubelets) vanished(ctx context.Context, id podID) error {
	k.mu.Lock()
	box := k.sandboxes[id.uid]
	k.mu.Unlock()
	if box == nil {
		return nil
	}
	if err := k.down(ctx, box); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sandboxes, id.uid)
	return nil
}
