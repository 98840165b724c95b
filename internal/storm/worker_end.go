package storm

import (
	"context"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ways to end a pod.

// end ends one of the pods, unless it is one that stays.
func (k *worker) end(ctx context.Context) {
	p := k.take()
	if p == nil {
		return
	}
	if time.Now().Before(p.stays) {
		k.add(p)
		return
	}
	switch k.r.IntN(9) {
	case 0, 1:
		k.vanish(ctx, p)
	case 2: // the plugin dies during the teardown, which is not retried
		k.client.FaultProxy.Die(1+k.r.IntN(4), k.r.IntN(2) == 0)
		k.teardown(ctx, p, false)
		if k.client.FaultProxy.Reset() {
			k.made.add("died releasing")
		}
	case 3:
		k.finish(ctx, p)
	case 4:
		k.forceDelete(ctx, p)
	default:
		k.teardown(ctx, p, k.r.IntN(2) == 0)
	}
}

// giveBack reports the end of a pod to the checker. It must be called before any request
// about the end is sent.
func (k *worker) giveBack(ctx context.Context, p *pod) bool {
	err := k.checker.Release(context.WithoutCancel(ctx), p.leases)
	k.troubles.add(err)
	return err == nil
}

// teardown ends a pod properly: optionally it terminates for a while, then its addresses
// are released, then its object is deleted.
func (k *worker) teardown(ctx context.Context, p *pod, terminates bool) {
	if terminates {
		// A status that the kubelet has not written yet is never written.
		err := persist(ctx, "terminating pod "+p.name, func(ctx context.Context) error {
			return ignoreNotFound(k.cluster.Kube.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{}))
		})
		k.troubles.add(err)
		pause(ctx, time.Duration(k.r.IntN(1500))*time.Millisecond)
	}
	if !k.giveBack(ctx, p) {
		return
	}
	k.release(ctx, p)
	if k.r.IntN(2) == 0 {
		k.patch(ctx, p, map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			conversion.AnnotationPodIP: "", conversion.AnnotationPodIPs: "",
		}}})
	}
	k.deleteObject(ctx, p)
	k.made.add("torn down")
}

// release performs CNI DEL for each network. The kubelet retries it for a while unless it
// has died.
func (k *worker) release(ctx context.Context, p *pod) {
	for _, handle := range p.handles() {
		for range 3 {
			if k.client.releaseHandle(context.WithoutCancel(ctx), handle) == nil || k.client.FaultProxy.isDead() {
				break
			}
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// vanish deletes a pod's object; its addresses stay allocated.
func (k *worker) vanish(ctx context.Context, p *pod) {
	if k.giveBack(ctx, p) {
		k.deleteObject(ctx, p)
		k.made.add("vanished")
	}
}

// finish lets a pod complete. Its network may or may not be torn down, and its object
// stays for a while.
func (k *worker) finish(ctx context.Context, p *pod) {
	if !k.giveBack(ctx, p) {
		return
	}
	k.patch(ctx, p, map[string]any{"status": corev1.PodStatus{Phase: corev1.PodSucceeded}})
	if k.r.IntN(2) == 0 {
		k.release(ctx, p)
	}
	pause(ctx, time.Duration(k.r.IntN(800))*time.Millisecond)
	k.deleteObject(ctx, p)
	k.made.add("finished")
}

func (k *worker) deleteObject(ctx context.Context, p *pod) {
	var now int64
	k.troubles.add(persist(ctx, "deleting pod "+p.name, func(ctx context.Context) error {
		return ignoreNotFound(k.cluster.Kube.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}))
}
