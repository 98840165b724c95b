package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Users other than pods, tunnels and virtual machines. Only these users know whether they
// still use their addresses.

type others struct {
	client   *Client
	serial   int
	all      []*other
	services []*other
	// unsure holds addresses without a handle whose allocation is unknown because an
	// answer was lost. They are released after the storm, because another user may have
	// them by then.
	unsure []netip.Addr
}

type other struct {
	name, handle string // some have no handle
	leases       []*Lease
	until        time.Time
}

// othersComeAndGo starts and ends podman containers, appliances with handmade handles,
// and users of "calicoctl ipam assign".
func (w *World) othersComeAndGo(ctx context.Context, r *rand.Rand) {
	o := &w.others
	for ctx.Err() == nil {
		pause(ctx, time.Duration(r.IntN(1200))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		// During the storm, an assignment is always completed or reverted.
		ctx := context.WithoutCancel(ctx)
		if len(o.all) < 6 {
			w.troubles.add(w.startOther(ctx, r))
			continue
		}
		if i := r.IntN(len(o.all)); time.Now().After(o.all[i].until) {
			x := o.all[i]
			o.all = append(o.all[:i:i], o.all[i+1:]...)
			w.troubles.add(w.endOther(ctx, x))
		}
	}
}

func (w *World) startOther(ctx context.Context, r *rand.Rand) error {
	o := &w.others
	o.serial++
	n := w.nodes[r.IntN(len(w.nodes))]
	x := &other{until: time.Now().Add(time.Duration(3+r.IntN(20)) * time.Second)}
	use := Use{Machine: n.name, Unseen: r.IntN(2) == 0}
	var addrs []netip.Addr
	var err error
	switch r.IntN(3) {
	case 0:
		x.name, x.handle = fmt.Sprintf("container %d", o.serial), fmt.Sprintf("podman.%016x", r.Uint64())
		addrs, err = o.client.autoAssign(ctx, ipam.AutoAssignArgs{
			HandleID: &x.handle, Hostname: n.name, Num4: 1, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
			Attrs: map[string]string{ipam.AttributeNode: n.name, ipam.AttributeTimestamp: time.Now().UTC().String()},
		})
	case 1:
		x.name, x.handle = fmt.Sprintf("appliance %d", o.serial), fmt.Sprintf("appliance-%d", o.serial)
		addrs, err = w.assign(ctx, r, n, &x.handle)
	default:
		x.name = fmt.Sprintf("assignment %d by hand", o.serial)
		addrs, err = w.assign(ctx, r, n, nil)
	}
	if err != nil {
		w.made.add("other user got nothing")
		if x.handle == "" {
			return nil
		}
		return w.giveBack(ctx, x.handle)
	}
	if x.leases, err = w.checker.LeasedAs(ctx, use, x.name, x.handle, addrs); err != nil {
		return err
	}
	o.all = append(o.all, x)
	w.made.add("other user")
	return nil
}

// assign assigns a random address of the first pool, without attributes.
func (w *World) assign(ctx context.Context, r *rand.Rand, n *node, handle *string) ([]netip.Addr, error) {
	base := netip.MustParsePrefix(pools["four"].CIDR).Addr().As4()
	base[3] += byte(r.IntN(128))
	addr := netip.AddrFrom4(base)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := w.others.client.IPAM.AssignIP(ctx, ipam.AssignIPArgs{IP: cnet.IP{IP: net.IP(addr.AsSlice())}, HandleID: handle, Hostname: n.name})
	if err != nil && handle == nil {
		w.others.unsure = append(w.others.unsure, addr)
	}
	return []netip.Addr{addr}, err
}

func (w *World) giveBack(ctx context.Context, handle string) error {
	return persist(ctx, "giving back "+handle, func(ctx context.Context) error { return w.others.client.releaseHandle(ctx, handle) })
}

func (w *World) endOther(ctx context.Context, x *other) error {
	if err := w.checker.Release(ctx, x.leases); err != nil {
		return err
	}
	if x.handle != "" {
		return w.giveBack(ctx, x.handle)
	}
	addr := x.leases[0].Addr
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, _, err := w.others.client.IPAM.ReleaseIPs(ctx, ipam.ReleaseOptions{Address: addr.String()}); err != nil {
		w.others.unsure = append(w.others.unsure, addr)
	}
	return nil
}

// servicesComeAndGo starts and ends LoadBalancer services with addresses.
func (w *World) servicesComeAndGo(ctx context.Context, r *rand.Rand) {
	o := &w.others
	for i := 0; ctx.Err() == nil; i++ {
		pause(ctx, time.Duration(r.IntN(2500))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		ctx := context.WithoutCancel(ctx)
		if len(o.services) < 4 {
			w.troubles.add(w.startService(ctx, fmt.Sprintf("web%d", i)))
			continue
		}
		x := o.services[0]
		o.services = o.services[1:]
		w.troubles.add(w.endService(ctx, x))
	}
}

// startService assigns an address as Calico's load balancer controller does (assignIP of
// kube-controllers/pkg/controllers/loadbalancer/loadbalancer_controller.go).
func (w *World) startService(ctx context.Context, name string) error {
	x := &other{name: name, handle: "lb-" + name}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	err := persist(ctx, "creating service "+name, func(ctx context.Context) error {
		_, err := w.cluster.Kube.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
		return exists(err)
	})
	if err != nil {
		return err
	}
	addrs, err := w.others.client.autoAssign(ctx, ipam.AutoAssignArgs{
		HandleID: &x.handle, Num4: 1, IntendedUse: apiv3.IPPoolAllowedUseLoadBalancer, Hostname: apiv3.VirtualLoadBalancer,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		Attrs: map[string]string{
			ipam.AttributeService: name, ipam.AttributeNamespace: namespace,
			ipam.AttributeType: string(corev1.ServiceTypeLoadBalancer), ipam.AttributeTimestamp: time.Now().UTC().String(),
		},
	})
	if err != nil {
		w.made.add("service got nothing")
		return w.endService(ctx, x)
	}
	if x.leases, err = w.checker.LeasedAs(ctx, Use{}, "service "+name, x.handle, addrs); err != nil {
		return err
	}
	w.others.services = append(w.others.services, x)
	w.made.add("service")
	return nil
}

func (w *World) endService(ctx context.Context, x *other) error {
	if err := w.checker.Release(ctx, x.leases); err != nil {
		return err
	}
	err := persist(ctx, "deleting service "+x.name, func(ctx context.Context) error {
		return ignoreNotFound(w.cluster.Kube.CoreV1().Services(namespace).Delete(ctx, x.name, metav1.DeleteOptions{}))
	})
	return errors.Join(err, w.giveBack(ctx, x.handle))
}

// reservationsComeAndGo temporarily reserves addresses of the first pool.
func (w *World) reservationsComeAndGo(ctx context.Context, r *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		pause(ctx, time.Duration(1000+r.IntN(4000))*time.Millisecond)
		base := netip.MustParsePrefix(pools["four"].CIDR).Addr().As4()
		base[3] += byte(r.IntN(32) * 4)
		name := fmt.Sprintf("kept-%d", i)
		cidr := netip.PrefixFrom(netip.AddrFrom4(base), 29+r.IntN(4)).Masked()
		if err := w.seeder.Reservation(ctx, name, cidr); err == nil {
			w.made.add("reservation")
		}
		pause(ctx, time.Duration(1000+r.IntN(4000))*time.Millisecond)
		w.troubles.add(persist(context.WithoutCancel(ctx), "deleting reservation "+name, func(ctx context.Context) error {
			return ignoreNotFound(w.cluster.Delete(ctx, testcluster.CRDv1.Resource("ipreservations"), "", name))
		}))
	}
}

// resolveUnsure releases the addresses in unsure. No other client may be active.
func (w *World) resolveUnsure(ctx context.Context) error {
	for _, addr := range w.others.unsure {
		if w.checker.Uses(addr) {
			continue
		}
		attrs, handle, err := w.others.client.IPAM.GetAssignmentAttributes(ctx, cnet.IP{IP: net.IP(addr.AsSlice())})
		if err != nil || handle != nil || len(attrs) > 0 {
			continue // not allocated, or allocated to another user
		}
		if err := w.seeder.ReleaseIP(ctx, addr); err != nil {
			return err
		}
	}
	w.others.unsure = nil
	return nil
}

// leaveOthers ends all of these users.
func (w *World) leaveOthers(ctx context.Context) error {
	for _, x := range w.others.all {
		if err := w.endOther(ctx, x); err != nil {
			return err
		}
	}
	for _, x := range w.others.services {
		if err := w.endService(ctx, x); err != nil {
			return err
		}
	}
	w.others.all, w.others.services = nil, nil
	balancer := ipam.AffinityConfig{AffinityType: ipam.AffinityTypeVirtual, Host: apiv3.VirtualLoadBalancer}
	if err := w.seeder.Calico.IPAM().ReleaseHostAffinities(ctx, balancer, true); err != nil {
		return err
	}
	return w.resolveUnsure(ctx)
}
