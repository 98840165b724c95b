package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Nodes that come and go.

// tunnels are the tunnels that a node may have.
var tunnels = []seeding.Tunnel{seeding.VXLAN, seeding.VXLANv6}

// startNode registers a node and allocates its tunnel addresses, as the kubelet and
// calico/node do. A node without an address has no tunnel.
func (w *World) startNode(ctx context.Context, n *node, hasTunnels bool) error {
	// Tunnels of the Node's previous life are released.
	if err := w.checker.Release(ctx, n.tunnels); err != nil {
		return err
	}
	n.tunnels = nil
	err := persist(ctx, "creating node "+n.name, func(ctx context.Context) error {
		return exists(w.seeder.Node(ctx, seeding.Node{Name: n.name}))
	})
	if err != nil {
		return err
	}
	n.machine.set(true, true)
	if !hasTunnels {
		return nil
	}
	for _, t := range tunnels {
		if err := w.startTunnel(ctx, n, t); err != nil {
			return err
		}
	}
	return nil
}

// startTunnel first releases addresses of the node's previous life
// (ensureHostTunnelAddress of node/pkg/allocateip/allocateip.go).
func (w *World) startTunnel(ctx context.Context, n *node, t seeding.Tunnel) error {
	err := w.seeder.ReleaseHandle(ctx, t.Handle(n.name))
	var addr netip.Addr
	if err == nil {
		addr, err = w.seeder.Tunnel(ctx, t, n.name)
	}
	if err != nil {
		w.made.add("tunnel failed") // the pool is full, or the API server was killed
		return w.dropTunnel(ctx, n, t)
	}
	leases, err := w.checker.LeasedAs(ctx, Use{Machine: n.name, Device: true}, "the tunnel of "+n.name, t.Handle(n.name), []netip.Addr{addr}, NodeKey(n.name))
	n.tunnels = append(n.tunnels, leases...)
	w.made.add("tunnel")
	return err
}

// dropTunnel releases an address that may have been allocated for a failed tunnel, and
// removes it from the Node.
func (w *World) dropTunnel(ctx context.Context, n *node, t seeding.Tunnel) error {
	annotation := "projectcalico.org/IPv4VXLANTunnelAddr"
	if t.Handle(n.name) == seeding.VXLANv6.Handle(n.name) {
		annotation = "projectcalico.org/IPv6VXLANTunnelAddr"
	}
	return persist(ctx, "taking back the tunnel address of "+n.name, func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, annotation)
		_, err := w.cluster.Kube.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return errors.Join(ignoreNotFound(err), w.seeder.ReleaseHandle(ctx, t.Handle(n.name)))
	})
}

// stopNode deletes only a Node. If its machine keeps running, its tunnels and containers
// do, too.
func (w *World) stopNode(ctx context.Context, n *node, runsOn bool) error {
	n.machine.set(runsOn, false)
	if runsOn {
		w.checker.Change(n.tunnels, func(u *Use) { u.Collectable = true })
	} else if err := w.powerOff(ctx, n); err != nil {
		return err
	}
	return persist(ctx, "deleting node "+n.name, func(ctx context.Context) error {
		return ignoreNotFound(w.cluster.Kube.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}))
	})
}

// powerOff ends the orphans and tunnels on a machine.
func (w *World) powerOff(ctx context.Context, n *node) error {
	err := w.checker.Release(ctx, append(n.orphans.take(0), n.tunnels...))
	n.tunnels = nil
	return err
}

// nodesComeAndGo ends random nodes in all ways, and starts them again under the same
// name.
func (w *World) nodesComeAndGo(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(300+r.IntN(1500))*time.Millisecond)
		n := w.nodes[r.IntN(len(w.nodes))]
		kind := []departure{drained, lost, survived}[r.IntN(3)]
		if ctx.Err() != nil {
			return
		}
		w.endNode(ctx, n, kind, r)
	}
}

func (w *World) endNode(ctx context.Context, n *node, kind departure, r *rand.Rand) {
	if !n.departure.CompareAndSwap(int32(up), int32(kind)) {
		return // another event is happening to it
	}
	defer n.departure.Store(int32(up))
	if kind == drained {
		deadline := time.Now().Add(10 * time.Second)
		for n.pods.Load() > 0 && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if err := w.stopNode(ctx, n, kind == survived); err != nil {
		w.troubles.add(err)
		return
	}
	w.made.add("node " + kind.String())
	switch {
	case kind == survived:
		pause(ctx, time.Duration(4000+r.IntN(6000))*time.Millisecond)
	case r.IntN(3) > 0:
		pause(ctx, time.Duration(r.IntN(4000))*time.Millisecond)
	}
	if r.IntN(3) == 0 { // like kube-controllers; calicoctl does not require empty blocks
		release, cancel := context.WithTimeout(ctx, callTimeout)
		err := w.seeder.Calico.IPAM().ReleaseHostAffinities(release, host(n.name), r.IntN(4) > 0)
		cancel()
		if err == nil {
			w.made.add("host affinities released")
		}
	}
	w.troubles.add(w.startNode(context.WithoutCancel(ctx), n, r.IntN(4) > 0))
}
