package storm

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	corev1 "k8s.io/api/core/v1"
)

// Ways to show a pod's addresses. For each source of owners, some pods are visible only
// there, and not in any network namespace.

// visibility is how a pod's object shows its addresses.
type visibility int

const (
	plain     visibility = iota // in all sources
	hidden                      // in all sources except network namespaces
	byStatus                    // only in the pod's status
	byCalico                    // only in Calico's annotations; another plugin owns the status
	bySandbox                   // only through the ID of its sandbox
)

func (s visibility) unseen() bool { return s != plain }

// collectable reports whether Calico's collector assigns other addresses to the pod: if a
// pod has a status, the collector ignores all other sources (libcalico-go
// lib/backend/k8s/conversion, getPodIPs).
func (s visibility) collectable() bool { return s == byCalico || s == bySandbox }

func (k *worker) visibility() visibility {
	if k.r.IntN(2) == 0 {
		return plain
	}
	return visibility(1 + k.r.IntN(4))
}

// elsewhere returns an unused address outside Calico's pools.
func (k *worker) elsewhere() string {
	n := k.foreign.Add(1)
	return netip.AddrFrom4([4]byte{172, byte(20 + n>>16), byte(n >> 8), byte(n)}).String()
}

// writeStatus writes the status and annotations that the kubelet and the CNI plugins
// write once a pod has its addresses.
func (k *worker) writeStatus(ctx context.Context, p *pod) {
	var nets []string
	var ips []corev1.PodIP
	// The status holds one address of each family; Calico's annotation holds all.
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

// networkStatus is the annotation where Multus lists a pod's interfaces.
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

// sandbox returns the ID of the pod's sandbox.
func (p *pod) sandbox() string { return strings.TrimPrefix(p.handle, "k8s-pod-network.") }

// secondHandle returns the handle of the pod's address in another network.
func (p *pod) secondHandle() string { return "storm-second." + p.sandbox() }

func (p *pod) handles() []string {
	if p.second.IsValid() {
		return []string{p.handle, p.secondHandle()}
	}
	return []string{p.handle}
}

// secondNetwork assigns a pod an address in another network, also from Calico's IPAM.
// Calico's kube-controllers does not see it, because it does not read that annotation.
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
