package storm

import (
	"context"
	"net/netip"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Windows node, which reserves addresses of each of its blocks.

// keptByWindows is the reservation that Calico's CNI plugin requests on Windows
// (cni-plugin/pkg/ipamplugin/ipam_plugin.go).
var keptByWindows = &ipam.HostReservedAttr{StartOfBlock: 3, EndOfBlock: 1, Handle: ipam.WindowsReservedHandle, Note: "windows host rsvd"}

// keepBack reports the addresses that a Windows node reserves in the block of a pod's
// address. The reservation ends when a client deletes the block, as Calico does when no
// pod uses it. No repair may free such an address.
func (k *worker) keepBack(ctx context.Context, p *pod) {
	if k.node != k.windows {
		return
	}
	block, err := p.addrs[0].Prefix(pools["windows"].BlockSize)
	if err != nil {
		panic(err)
	}
	kept := []netip.Addr{block.Addr(), block.Addr().Next(), block.Addr().Next().Next()}
	last := kept[2]
	for a := last; block.Contains(a); a = a.Next() {
		last = a
	}
	kept = append(kept, last)
	if k.checker.Uses(kept[0]) {
		return
	}
	leases, err := k.checker.LeasedAs(context.WithoutCancel(ctx), Use{Collectable: true}, "the Windows node", ipam.WindowsReservedHandle, kept)
	k.troubles.add(err)
	k.windows.tunnels = append(k.windows.tunnels, leases...)
	k.made.add("block of a Windows node")
}

// leaveWindows releases the blocks of the Windows node and deletes it.
func (w *World) leaveWindows(ctx context.Context) error {
	if err := w.checker.Release(ctx, w.windows.tunnels); err != nil {
		return err
	}
	if err := w.seeder.Calico.IPAM().ReleaseHostAffinities(ctx, host(w.windows.name), true); err != nil {
		return err
	}
	return ignoreNotFound(w.cluster.Kube.CoreV1().Nodes().Delete(ctx, w.windows.name, metav1.DeleteOptions{}))
}
