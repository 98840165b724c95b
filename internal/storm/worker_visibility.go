package storm

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	corev1 "k8s.io/api/core/v1"
)

// How pods show their addresses. Each source in which an owner is looked for has pods
// that nothing else speaks for, no network namespace either.

// visibility is how a pod's object shows its addresses.
type visibility int

const (
	plain     visibility = iota // in every way
	hidden                      // in every way, and no network namespace shows them
	byStatus                    // in its status alone
	byCalico                    // in Calico's annotations alone: another plugin has the status
	bySandbox                   // by no more than the ID of its sandbox
)

func (s visibility) unseen() bool { return s != plain }

// collectable reports whether Calico's collector takes the pod for one with other
// addresses: of a pod that has a status it believes nothing else (libcalico-go
// lib/backend/k8s/conversion, getPodIPs).
func (s visibility) collectable() bool { return s == byCalico || s == bySandbox }

func (k *worker) visibility() visibility {
	if k.r.IntN(2) == 0 {
		return plain
	}
	return visibility(1 + k.r.IntN(4))
}

// elsewhere is an address that is none of Calico's, and that no one else has.
func (k *worker) elsewhere() string {
	n := k.foreign.Add(1)
	return netip.AddrFrom4([4]byte{172, byte(20 + n>>16), byte(n >> 8), byte(n)}).String()
}

// writeStatus writes what the CNI plugins and kubelet write once a pod has its
// addresses.
func (k *worker) writeStatus(ctx context.Context, p *pod) {
	var nets []string
	var ips []corev1.PodIP
	// The status has room for one address of each family; Calico's annotation
	// names them all.
	seen := map[bool]bool{}
	for _, a := range p.addrs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()).String())
		if seen[a.Is4()] {
			continue
		}
		seen[a.Is4()] = true
		ips = append(ips, corev1.PodIP{IP: a.String()})
	}
	annotations := map[string]string{}
	if p.visibility == plain || p.visibility == hidden || p.visibility == byCalico {
		annotations[conversion.AnnotationPodIP], annotations[conversion.AnnotationPodIPs] = nets[0], strings.Join(nets, ",")
	}
	if p.visibility == plain || p.visibility == hidden || p.visibility == bySandbox {
		annotations[conversion.AnnotationContainerID] = p.sandbox()
	}
	if p.visibility == byCalico || p.visibility == bySandbox {
		ips = []corev1.PodIP{{IP: k.elsewhere()}}
	}
	if p.second.IsValid() {
		annotations[networkStatus] = networks(p)
	}
	k.patch(ctx, p, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	k.patch(ctx, p, map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ips[0].IP, PodIPs: ips}})
}

// networkStatus is the annotation in which Multus tells of a pod's interfaces.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

func networks(p *pod) string {
	type network struct {
		Name      string   `json:"name"`
		Interface string   `json:"interface"`
		IPs       []string `json:"ips"`
		Default   bool     `json:"default,omitempty"`
	}
	all := []network{{"k8s-pod-network", "eth0", nil, true}, {"storm/second", "net1", []string{p.second.String()}, false}}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// sandbox is the ID of the pod's sandbox.
func (p *pod) sandbox() string { return strings.TrimPrefix(p.handle, "k8s-pod-network.") }

// secondHandle is the handle of the pod's address in another network.
func (p *pod) secondHandle() string { return "storm-second." + p.sandbox() }

func (p *pod) handles() []string {
	if p.second.IsValid() {
		return []string{p.handle, p.secondHandle()}
	}
	return []string{p.handle}
}

// secondNetwork gives a pod an address in another network, of Calico's IPAM, too. Of
// Calico's kube-controllers no one knows it, as the annotation is not read there.
func (k *worker) secondNetwork(ctx context.Context, p *pod) {
	if k.r.IntN(5) > 0 || p.namespace != namespace || k.node == k.windows {
		return
	}
	handle := p.secondHandle()
	args := k.request(p)
	args.HandleID, args.Num4, args.Num6 = &handle, 1, 0
	addrs, err := k.client.autoAssign(ctx, args)
	if err != nil {
		k.troubles.add(persist(ctx, "giving back "+handle, func(ctx context.Context) error { return k.client.releaseHandle(ctx, handle) }))
		return
	}
	use := Use{Machine: k.node.name, Unseen: p.visibility.unseen() || k.r.IntN(2) == 0, Collectable: true}
	leases, err := k.checker.LeasedAs(context.WithoutCancel(ctx), use, "net1 of pod "+p.namespace+"/"+p.name, handle, addrs, p.key(), NodeKey(k.node.name))
	if err != nil {
		k.troubles.add(err)
		return
	}
	p.second, p.leases = addrs[0], append(p.leases, leases...)
	k.made.add("second network")
}
