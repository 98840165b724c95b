package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Orphans: users of addresses that no object shows any more, and nodes that do not report
// what runs on their machines.

// orphans holds the orphans of one machine.
type orphans struct {
	mu     sync.Mutex
	leases []*Lease
	since  []time.Time
}

func (g *orphans) add(leases []*Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range leases {
		g.leases, g.since = append(g.leases, h), append(g.since, time.Now())
	}
}

// take removes and returns the orphans of at least the given age.
func (g *orphans) take(age time.Duration) []*Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for n < len(g.since) && time.Since(g.since[n]) >= age {
		n++
	}
	old := g.leases[:n:n]
	g.leases, g.since = g.leases[n:], g.since[n:]
	return old
}

// forceDelete deletes only a pod's object; its containers keep running. If no network
// namespace shows an address of the pod, its use would be undetectable, so such a pod
// really ends.
func (k *worker) forceDelete(ctx context.Context, p *pod) {
	for _, h := range p.leases {
		if h.Unseen {
			k.vanish(ctx, p)
			return
		}
	}
	k.checker.Change(p.leases, func(u *Use) { u.Orphan, u.Collectable = true, true })
	k.node.orphans.add(p.leases)
	k.deleteObject(ctx, p)
	k.made.add("force deleted, and running on")
}

// makeOrphans runs all users of addresses other than pods and tunnels.
func (w *World) makeOrphans(ctx context.Context, run func(stream uint64, f func(*rand.Rand))) {
	run(1100, func(r *rand.Rand) { w.orphansEnd(ctx, r) })
	run(1101, func(r *rand.Rand) { w.nodesFallSilent(ctx, silent, r) })
	run(1106, func(r *rand.Rand) { w.nodesFallSilent(ctx, off, r) })
	run(1102, func(r *rand.Rand) { w.virtualMachines(ctx, r) })
	run(1103, func(r *rand.Rand) { w.othersComeAndGo(ctx, r) })
	run(1104, func(r *rand.Rand) { w.servicesComeAndGo(ctx, r) })
	run(1105, func(r *rand.Rand) { w.reservationsComeAndGo(ctx, r) })
}

// orphansEnd ends old orphaned containers.
func (w *World) orphansEnd(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
		n := w.nodes[r.IntN(len(w.nodes))]
		w.troubles.add(w.checker.Release(ctx, n.orphans.take(15*time.Second)))
	}
}

// nodesFallSilent makes nodes NotReady. Some lose their network; the machines of others
// are off, which an operator then confirms with the out-of-service taint.
func (w *World) nodesFallSilent(ctx context.Context, kind departure, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(500+r.IntN(1500))*time.Millisecond)
		n := w.nodes[r.IntN(len(w.nodes))]
		if ctx.Err() != nil {
			return
		}
		if n.departure.CompareAndSwap(int32(up), int32(kind)) {
			w.troubles.add(w.silence(ctx, n, kind, r))
			n.departure.Store(int32(up))
			w.made.add("node " + kind.String())
		}
	}
}

func (w *World) silence(ctx context.Context, n *node, kind departure, r *rand.Rand) error {
	n.machine.set(true, false)
	if err := w.setReady(ctx, n, false); err != nil {
		return err
	}
	if kind == silent {
		pause(ctx, time.Duration(5000+r.IntN(7000))*time.Millisecond)
	} else if err := w.turnOff(ctx, n, r); err != nil {
		return err
	}
	if err := w.setReady(ctx, n, true); err != nil {
		return err
	}
	n.machine.set(true, true)
	return nil
}

// turnOff turns a machine off for a while and marks its Node after that. The Node keeps
// its tunnels, which return with it.
func (w *World) turnOff(ctx context.Context, n *node, r *rand.Rand) error {
	n.steps.Lock()   // wait for operations on the node; later ones see its new state
	n.steps.Unlock() //nolint:staticcheck // nothing is to be done in between
	for n.pods.Load() > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := w.checker.Release(ctx, n.orphans.take(0)); err != nil {
		return err
	}
	n.machine.set(false, false)
	err := w.taint(ctx, n, `[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]`)
	if err != nil {
		return err
	}
	pause(ctx, time.Duration(6000+r.IntN(6000))*time.Millisecond)
	return w.taint(ctx, n, "null")
}

func (w *World) taint(ctx context.Context, n *node, taints string) error {
	return w.patchNode(ctx, n, types.MergePatchType, fmt.Sprintf(`{"spec":{"taints":%s}}`, taints))
}

func (w *World) setReady(ctx context.Context, n *node, ready bool) error {
	status := map[bool]string{true: "True", false: "Unknown"}[ready]
	return w.patchNode(ctx, n, types.StrategicMergePatchType, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
}

func (w *World) patchNode(ctx context.Context, n *node, how types.PatchType, patch string, subresources ...string) error {
	return persist(context.WithoutCancel(ctx), "writing node "+n.name, func(ctx context.Context) error {
		_, err := w.cluster.Kube.CoreV1().Nodes().Patch(ctx, n.name, how, []byte(patch), metav1.PatchOptions{}, subresources...)
		return ignoreNotFound(err)
	})
}

// layOrphans ends all orphans. Their IPAM objects are left to repairs.
func (w *World) layOrphans(ctx context.Context) error {
	for _, n := range w.machines() {
		if err := w.checker.Release(ctx, n.orphans.take(0)); err != nil {
			return err
		}
	}
	// A pod whose address was freed by Calico's collector still names that address.
	for _, k := range w.workers.all {
		k.pods = slices.DeleteFunc(k.pods, func(p *pod) bool {
			taken := w.checker.Taken(p.leases)
			if taken {
				k.node.pods.Add(-1)
				k.teardown(ctx, p, false)
			}
			return taken
		})
	}
	w.vms.all = slices.DeleteFunc(w.vms.all, func(v *vm) bool {
		taken := w.checker.Taken(v.leases)
		if taken {
			w.troubles.add(w.deleteVM(ctx, v))
		}
		return taken
	})
	for _, handle := range w.vms.unsure {
		if err := w.vms.client.releaseHandle(ctx, handle); err != nil {
			return err
		}
	}
	return w.resolveUnsure(ctx)
}

// leaveOrphans ends all users other than pods, as their owners do.
func (w *World) leaveOrphans(ctx context.Context) error {
	for _, v := range w.vms.all {
		if err := w.deleteVM(ctx, v); err != nil {
			return err
		}
	}
	w.vms.all = nil
	if err := w.leaveOthers(ctx); err != nil {
		return err
	}
	return w.leaveWindows(ctx)
}
