package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// The storm's secondary network has one range.
const (
	secondaryRange     = "10.9.0.0/26"
	secondaryPool      = "10.9.0.0-26"
	secondaryNamespace = "kube-system"
	secondaryAddresses = 62
	secondaryInterface = "net1"
)

var (
	secondaryPools        = testcluster.Whereabouts.Resource("ippools")
	secondaryReservations = testcluster.Whereabouts.Resource("overlappingrangeipreservations")
)

// secondaryPlugin starts and ends pods on a secondary network, as the kubelet, Multus and
// Whereabouts do (pkg/storage/kubernetes, IPManagementKubernetesUpdate; pkg/allocate,
// AssignIP). While it holds a Lease, it writes first the pool, with a JSON patch that
// tests its resourceVersion, and then the reservation. It also has Whereabouts' mistake:
// if the pool's write fails, it continues with the reservation and ignores the failure.
type secondaryPlugin struct {
	c            *testcluster.Cluster
	addressUsers *addressUsers
	r            *rand.Rand
	name         string // of its pods; followed by a number unless stable is set
	stable       bool   // all pods have the same name, as in a StatefulSet
	node         string
	made         *tally
	troubles     *troubles
}

func (p *secondaryPlugin) client(r testcluster.Resource) dynamic.ResourceInterface {
	return p.c.Dynamic.Resource(r.GroupVersionResource).Namespace(secondaryNamespace)
}

// sandbox is the sandbox of one pod, with its CNI calls.
type sandbox struct {
	*secondaryPlugin
	pod, id string
}

func (s *sandbox) podref() string { return "default/" + s.pod }

// moment returns a random duration below a bound.
func (p *secondaryPlugin) moment(bound time.Duration) time.Duration {
	return time.Duration(p.r.Int64N(int64(bound)))
}

// work starts and ends pods in all ways until the context ends.
func (p *secondaryPlugin) work(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		s := &sandbox{p, p.name, fmt.Sprintf("%s-%d", p.name, n)}
		if !p.stable {
			s.pod = s.id
		}
		// A started call runs to its end, like a CNI plugin's.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		if u := s.start(whole, p.r.IntN(5) == 0); u != nil {
			pause(ctx, p.moment(5*time.Second))
			if ctx.Err() == nil || p.r.IntN(3) == 0 {
				s.stop(whole, u, ends[p.r.IntN(len(ends))])
			}
		}
		cancel()
		pause(ctx, p.moment(2500*time.Millisecond))
	}
}

// start creates a pod and assigns an address. If that fails, it deletes the pod and
// returns nil. If lose is set, the pool's write fails unnoticed (Whereabouts #712).
func (s *sandbox) start(ctx context.Context, lose bool) *secondaryUse {
	pods := s.c.Kube.CoreV1().Pods("default")
	s.insist(ctx, "making a pod", func(ctx context.Context) error {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: s.pod},
			Spec:       corev1.PodSpec{NodeName: s.node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		return exists(err)
	})
	u := &secondaryUse{secondaryOwner: secondaryOwner{s.podref(), s.id}, node: s.node}
	s.leading(ctx, func(ctx context.Context) { u.addr, u.inPool = s.assign(ctx, lose) })
	if !u.addr.IsValid() {
		s.made.add("ADD failed")
		if s.r.IntN(2) == 0 {
			s.leading(ctx, func(ctx context.Context) { s.free(ctx, false) })
		}
		s.remove(ctx)
		return nil
	}
	s.troubles.add(s.addressUsers.give(ctx, u))
	pause(ctx, s.moment(2500*time.Millisecond)) // the pod's other networks and its images
	status := fmt.Sprintf(`[{"name":"default/fast","interface":%q,"ips":[%q],"dns":{}}]`, secondaryInterface, u.addr)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		"k8s.v1.cni.cncf.io/network-status": status, "cni.projectcalico.org/containerID": s.id,
	}}})
	s.troubles.add(err)
	s.insist(ctx, "writing a pod's status", func(ctx context.Context) error {
		if _, err := pods.Patch(ctx, s.pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		_, err := pods.Patch(ctx, s.pod, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
		return err
	})
	s.made.add("ADD")
	return u
}

// end is how a pod ends.
type end int

const (
	properly    end = iota
	halfDEL         // only the pool's entry is removed, and the reservation remains
	withoutDEL      // both remain
	objectFirst     // the sandbox runs on for a while without its object
)

var ends = []end{properly, halfDEL, withoutDEL, withoutDEL, objectFirst}

// stop ends a pod. If host evidence is forbidden at the moment, a pod whose object would
// be deleted first ends properly.
func (s *sandbox) stop(ctx context.Context, u *secondaryUse, how end) {
	if how == objectFirst && s.addressUsers.blind.TryRLock() {
		s.made.add("runs on without its object")
		s.remove(ctx)
		pause(ctx, s.moment(4*time.Second))
		s.troubles.add(s.addressUsers.end(ctx, u))
		s.addressUsers.blind.RUnlock()
		return
	}
	s.troubles.add(s.addressUsers.end(ctx, u))
	found := false
	if how == withoutDEL {
		s.made.add("no DEL")
	} else {
		s.leading(ctx, func(ctx context.Context) { found = s.free(ctx, how == halfDEL) })
	}
	if !u.inPool && !found {
		s.addressUsers.leave(u.addr, u.pod)
	}
	s.remove(ctx)
}

func (s *sandbox) remove(ctx context.Context) {
	s.insist(ctx, "deleting a pod", func(ctx context.Context) error {
		return ignoreNotFound(s.c.Kube.CoreV1().Pods("default").Delete(ctx, s.pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
}

// insist retries do until it succeeds, because the API server is killed at times.
func (s *sandbox) insist(ctx context.Context, what string, do func(context.Context) error) {
	s.troubles.add(persist(ctx, what, do))
}

// leading calls do while it holds Whereabouts' Lease, unless the Lease cannot be
// acquired.
func (s *sandbox) leading(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stop, leave := context.WithCancel(ctx)
	defer leave()
	began := make(chan struct{})
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "whereabouts", Namespace: secondaryNamespace}, Client: s.c.Kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "default/" + s.id},
		},
		LeaseDuration: 1500 * time.Millisecond, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(began) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		s.troubles.add(err)
		return
	}
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(stop) }()
	select {
	case <-began: // it may lose the Lease meanwhile; the patches' tests handle that
		do(ctx)
	case <-ctx.Done():
	case <-ended:
	}
	leave()
	<-ended
}

// assign assigns the address that the pool records for the pod, or else the lowest
// address that neither the pool nor another pod's reservation has. It returns the zero
// Addr if that fails. inPool reports whether the pool is known to record the address.
func (s *sandbox) assign(ctx context.Context, lose bool) (a netip.Addr, inPool bool) {
	passed := map[int]bool{} // reserved for other pods
	reserved := false
	for range 100 {
		pool, err := s.client(secondaryPools).Get(ctx, secondaryPool, metav1.GetOptions{})
		if err != nil {
			return netip.Addr{}, false
		}
		offset, again := s.offset(pool, passed)
		if offset == 0 {
			return netip.Addr{}, false
		}
		a = secondaryAddr(offset)
		r, err := s.client(secondaryReservations).Get(ctx, a.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return netip.Addr{}, false
		default:
			if owner, _, _ := unstructured.NestedString(r.Object, "spec", "podref"); owner != s.podref() {
				passed[offset] = true
				continue
			}
			reserved = true // still set in later attempts, even for another address
		}
		if lose {
			break
		}
		key := "/spec/allocations/" + strconv.Itoa(offset)
		ops := []map[string]any{{"op": "replace", "path": key + "/id", "value": s.id}}
		if !again {
			ops = []map[string]any{{"op": "test", "path": key, "value": nil}, {"op": "add", "path": key, "value": map[string]any{"id": s.id, "podref": s.podref(), "ifname": secondaryInterface}}}
		}
		if err = s.patch(ctx, pool, ops...); apierrors.IsInvalid(err) {
			continue
		}
		inPool = err == nil
		break
	}
	if reserved {
		if !inPool {
			return netip.Addr{}, false
		}
		s.made.add("ADD with the reservation of before")
		return a, true
	}
	_, err := s.client(secondaryReservations).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": secondaryReservations.GroupVersion().String(), "kind": secondaryReservations.Kind,
		"metadata": map[string]any{"name": a.String()}, "spec": map[string]any{"podref": s.podref(), "ifname": secondaryInterface},
	}}, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.IsAlreadyExists(err) && !inPool {
			s.addressUsers.leave(a, s.podref()) // it may exist
		}
		return netip.Addr{}, false
	}
	if !inPool {
		// A call that lost its Lease runs at the same time as others: Whereabouts itself has that
		// race.
		if s.recordedForAnother(ctx, a) {
			if ignoreNotFound(s.client(secondaryReservations).Delete(ctx, a.String(), metav1.DeleteOptions{})) != nil {
				s.addressUsers.leave(a, s.podref())
			}
			return netip.Addr{}, false
		}
		s.made.add("ADD without the pool")
	}
	return a, inPool
}

// recordedForAnother reports whether the pool records an address for another pod, or cannot be read.
func (s *sandbox) recordedForAnother(ctx context.Context, a netip.Addr) bool {
	pool, err := s.client(secondaryPools).Get(ctx, secondaryPool, metav1.GetOptions{})
	if err != nil {
		return true
	}
	all, _, _ := unstructured.NestedMap(pool.Object, "spec", "allocations")
	for key, entry := range all {
		offset, _ := strconv.Atoi(key)
		if owner, _, _ := unstructured.NestedString(entry.(map[string]any), "podref"); secondaryAddr(offset) == a && owner != s.podref() {
			return true
		}
	}
	return false
}

// offset returns the offset of the pod's entry, or else of the lowest free address, or 0.
func (s *sandbox) offset(pool *unstructured.Unstructured, passed map[int]bool) (offset int, had bool) {
	all, _, _ := unstructured.NestedMap(pool.Object, "spec", "allocations")
	for key, entry := range all {
		if owner, _, _ := unstructured.NestedString(entry.(map[string]any), "podref"); owner == s.podref() {
			offset, _ = strconv.Atoi(key)
			return offset, true
		}
	}
	for offset = 1; offset <= secondaryAddresses; offset++ {
		if all[strconv.Itoa(offset)] == nil && !passed[offset] {
			return offset, false
		}
	}
	return 0, false
}

// free removes the sandbox's entry from the pool, and then deletes its reservation unless
// dies is set. It reports whether there was an entry.
func (s *sandbox) free(ctx context.Context, dies bool) (found bool) {
	for range 100 {
		pool, err := s.client(secondaryPools).Get(ctx, secondaryPool, metav1.GetOptions{})
		if err != nil {
			return false
		}
		key := ""
		all, _, _ := unstructured.NestedMap(pool.Object, "spec", "allocations")
		for k, entry := range all {
			if id, _, _ := unstructured.NestedString(entry.(map[string]any), "id"); id == s.id {
				key = k
			}
		}
		if key == "" {
			return false
		}
		if err = s.patch(ctx, pool, map[string]any{"op": "remove", "path": "/spec/allocations/" + key}); apierrors.IsInvalid(err) {
			continue
		}
		offset, _ := strconv.Atoi(key)
		a := secondaryAddr(offset)
		if dies {
			s.made.add("half a DEL")
			s.addressUsers.leave(a, s.podref())
			return true
		}
		if ignoreNotFound(s.client(secondaryReservations).Delete(ctx, a.String(), metav1.DeleteOptions{})) != nil {
			s.addressUsers.leave(a, s.podref())
		}
		s.made.add("DEL")
		return true
	}
	return false
}

func (s *sandbox) patch(ctx context.Context, pool *unstructured.Unstructured, ops ...map[string]any) error {
	ops = append([]map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": pool.GetResourceVersion()}}, ops...)
	raw, err := json.Marshal(ops)
	if err == nil {
		_, err = s.client(secondaryPools).Patch(ctx, secondaryPool, types.JSONPatchType, raw, metav1.PatchOptions{})
	}
	return err
}
