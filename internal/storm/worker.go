package storm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// worker plays the kubelet and the CNI plugin of a node, alone or together with other workers. It
// starts pods and ends them in every way that pods can end.
type worker struct {
	*World
	id     int
	node   *node
	client *Client
	r      *rand.Rand
	pods   []*pod
	serial int // number of pods and sandboxes so far
	want   int // number of pods that it currently wants
}

type pod struct {
	namespace, name, handle string
	visibility              visibility
	addrs                   []netip.Addr
	second                  netip.Addr // in another network; invalid if none
	leases                  []*Lease
	due                     time.Time // when its status must be written; zero if it was written
	misrecorded             bool      // its lease knows one other handle at most
	stays                   time.Time // the worker does not end it before
}

func (p *pod) key() string { return PodKey(p.namespace, p.name) }

func (k *worker) run(ctx context.Context) {
	changeMind := time.Now()
	for ctx.Err() == nil {
		if time.Now().After(changeMind) {
			k.want = max(0, k.r.IntN(16)-5)
			changeMind = time.Now().Add(time.Duration(2000+k.r.IntN(6000)) * time.Millisecond)
		}
		k.step(ctx)
		pause(ctx, time.Duration(k.r.IntN(60))*time.Millisecond)
	}
}

// step performs one operation that the node's state allows.
func (k *worker) step(ctx context.Context) {
	k.node.steps.RLock()
	defer k.node.steps.RUnlock()
	k.catchUp(ctx)
	switch k.node.is() {
	case drained:
		if p := k.take(); p != nil {
			k.teardown(ctx, p, k.r.IntN(4) == 0)
		}
		return
	case lost:
		if p := k.take(); p != nil {
			k.vanish(ctx, p)
		}
		return
	case off:
		if p := k.take(); p != nil {
			k.vanish(ctx, p)
		}
		return
	case survived, silent:
		if k.r.IntN(20) == 0 { // the API server's pod garbage collector, or a forced deletion
			if p := k.take(); p != nil {
				k.forceDelete(ctx, p)
			}
		}
		return
	case up:
	}
	switch {
	case k.r.IntN(6) == 0:
		k.misrecord(ctx)
	case len(k.pods) < k.want:
		k.start(ctx)
	case len(k.pods) > k.want:
		k.end(ctx)
	case k.r.IntN(3) == 0: // replace a pod
		k.end(ctx)
		k.start(ctx)
	}
}

func (k *worker) add(p *pod) {
	k.pods = append(k.pods, p)
	k.node.pods.Add(1)
}

func (k *worker) take() *pod {
	if len(k.pods) == 0 {
		return nil
	}
	i := k.r.IntN(len(k.pods))
	p := k.pods[i]
	k.pods = append(k.pods[:i], k.pods[i+1:]...)
	k.node.pods.Add(-1)
	return p
}

// sandbox gives a pod a new sandbox, whose ID is part of its handle.
func (k *worker) sandbox(p *pod) {
	k.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%d", k.Seed, k.id, k.serial))
	p.handle = "k8s-pod-network." + hex.EncodeToString(sum[:])
}

// start starts a pod: first the object, then the network, then the status.
func (k *worker) start(ctx context.Context) {
	k.serial++
	p := &pod{namespace: namespace, name: fmt.Sprintf("w%d-%d", k.id, k.serial), visibility: k.visibility()}
	if k.r.IntN(4) == 0 { // a StatefulSet reuses the name
		p.name = fmt.Sprintf("set%d-%d", k.id, k.r.IntN(3))
		for _, other := range k.pods {
			if other.name == p.name {
				return
			}
		}
	}
	if k.r.IntN(5) == 0 && k.node != k.windows {
		p.namespace = fixedNamespace
	}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name},
		Spec:       corev1.PodSpec{NodeName: k.node.name, Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}}},
	}
	err := persist(ctx, "creating pod "+p.name, func(ctx context.Context) error {
		_, err := k.cluster.Kube.CoreV1().Pods(p.namespace).Create(ctx, object, metav1.CreateOptions{})
		return exists(err)
	})
	if err != nil {
		k.troubles.add(err)
		return
	}
	if !k.network(ctx, p) {
		k.deleteObject(ctx, p)
		return
	}
	k.add(p)
	if k.r.IntN(10) == 0 { // a slow kubelet: Pending without an address for many grace periods
		p.due = time.Now().Add(time.Duration(k.r.IntN(30)) * time.Second)
		return
	}
	k.writeStatus(ctx, p)
}

// catchUp writes the overdue status of pods with a slow kubelet.
func (k *worker) catchUp(ctx context.Context) {
	for _, p := range k.pods {
		if !p.due.IsZero() && time.Now().After(p.due) {
			p.due = time.Time{}
			k.writeStatus(ctx, p)
		}
	}
}

// network allocates a pod's addresses. If that fails, it tears the sandbox down and tries
// once more with another, as the kubelet does.
func (k *worker) network(ctx context.Context, p *pod) bool {
	k.node.begun.Add(1)
	defer k.node.ended.Add(1)
	for range 2 {
		k.sandbox(p)
		dies := k.r.IntN(15) == 0
		if dies {
			k.client.FaultProxy.Die(1+k.r.IntN(5), k.r.IntN(2) == 0)
		}
		addrs, err := k.client.autoAssign(ctx, k.request(p))
		k.client.FaultProxy.WaitIdle()
		died := k.client.FaultProxy.Reset()
		if died {
			k.made.add("died assigning")
		}
		if err == nil {
			use := Use{Machine: k.node.name, Unseen: p.visibility.unseen(), Collectable: p.visibility.collectable()}
			leases, err := k.checker.LeasedAs(context.WithoutCancel(ctx), use, "pod "+p.namespace+"/"+p.name, p.handle, addrs, p.key(), NodeKey(k.node.name))
			if err != nil {
				k.troubles.add(err)
				return false
			}
			p.addrs, p.leases = addrs, leases
			k.made.add("assigned")
			k.keepBack(ctx, p)
			k.secondNetwork(ctx, p)
			return true
		}
		k.made.add("not assigned")
		if died && k.r.IntN(2) == 0 {
			return false // the machine was lost: no teardown
		}
		_ = k.client.releaseHandle(ctx, p.handle)
	}
	return false
}

func (k *worker) request(p *pod) ipam.AutoAssignArgs {
	args := ipam.AutoAssignArgs{
		HandleID: &p.handle, Hostname: k.node.name, Num4: 1,
		Attrs: map[string]string{
			ipam.AttributeNode: k.node.name, ipam.AttributePod: p.name, ipam.AttributeNamespace: p.namespace,
			ipam.AttributeTimestamp: time.Now().UTC().String(),
		},
		IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Namespace:   &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}},
	}
	switch {
	case k.node == k.windows:
		args.IPv4Pools = []cnet.IPNet{cnet.MustParseCIDR(pools["windows"].CIDR)}
		args.HostReservedAttrIPv4s = keptByWindows
	case p.namespace == fixedNamespace:
		args.IPv4Pools = []cnet.IPNet{cnet.MustParseCIDR(pools["fixed"].CIDR)}
	case k.r.IntN(3) == 0:
		args.Num6 = 1
	case k.r.IntN(8) == 0:
		args.Num4 = 2 // if they come from two blocks, Calico's handle count is too high
	}
	return args
}

func (k *worker) patch(ctx context.Context, p *pod, patch any) {
	body, err := json.Marshal(patch)
	if err == nil {
		err = persist(ctx, "writing pod "+p.name, func(ctx context.Context) error {
			_, err := k.cluster.Kube.CoreV1().Pods(p.namespace).Patch(ctx, p.name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
			return ignoreNotFound(err)
		})
	}
	k.troubles.add(err)
}
