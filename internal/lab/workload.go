package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"
)

// Node is a machine that runs pods and BIRD.
type Node struct {
	Namespace
	Name string
	// Interfaces are its addresses on its link, IPv4 first.
	Interfaces [2]Interface
}

// Workload is a pod with its own network namespace.
type Workload struct {
	Namespace
	// Pod is its name; Node is the node on which it runs.
	Pod   string
	Node  *Node
	Addrs []netip.Addr
	// device is the node's end of its veth pair.
	device string
}

// These are a pod's next hops as Calico's CNI plugin sets them
// (cni-plugin/pkg/dataplane/linux). No machine has the IPv4 address; the node's end of
// the veth pair answers for it. The IPv6 address is the link-local address of the MAC
// address that every node's end has.
const (
	podGatewayIPv4 = "169.254.1.1"
	podGatewayIPv6 = "fe80::ecee:eeff:feee:eeee"
	hostEndMAC     = "ee:ee:ee:ee:ee:ee"
)

// workload creates a pod's network as Calico's CNI plugin and Felix do: a veth pair, the
// pod's addresses with full-length prefixes, and a route on the node to each address.
func (l *Lab) workload(tb testing.TB, node *Node, pod string, addrs []netip.Addr) (*Workload, error) {
	ns, err := newNamespace(tb, "pod-"+node.Name)
	if err != nil {
		return nil, err
	}
	ctx := tb.Context()
	sum := sha256.Sum256([]byte(pod))
	w := &Workload{Namespace: ns, Pod: pod, Node: node, device: "cali" + hex.EncodeToString(sum[:])[:11]}
	err = node.IP(ctx,
		fmt.Sprintf("link add %s address %s type veth peer name eth0 netns %s", w.device, hostEndMAC, ns.name),
		fmt.Sprintf("link set %s up", w.device))
	if err != nil {
		return nil, fmt.Errorf("making the interfaces of pod %s: %w", pod, err)
	}
	err = node.Set(ctx, "net.ipv4.conf."+w.device+".proxy_arp=1", "net.ipv4.neigh."+w.device+".proxy_delay=0")
	if err != nil {
		return nil, err
	}
	if err := ns.Set(ctx, "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0"); err != nil {
		return nil, err
	}
	if err := ns.IP(ctx, "link set lo up", "link set eth0 up"); err != nil {
		return nil, err
	}
	return w, w.Readdress(ctx, addrs)
}

// Readdress changes a pod's addresses, as a restart does.
func (w *Workload) Readdress(ctx context.Context, addrs []netip.Addr) error {
	var inPod, onNode []string
	for _, a := range w.Addrs {
		inPod = append(inPod, fmt.Sprintf("addr del %s dev eth0", single(a)))
		onNode = append(onNode, fmt.Sprintf("route del %s dev %s", single(a), w.device))
	}
	for _, a := range addrs {
		inPod = append(inPod, fmt.Sprintf("addr add %s dev eth0%s", single(a), nodad(a)))
		onNode = append(onNode, fmt.Sprintf("route add %s dev %s scope link proto boot", single(a), w.device))
	}
	if len(addrs) > 0 {
		// An interface loses its routes with its last address.
		inPod = append(inPod,
			"route replace "+podGatewayIPv4+" dev eth0 scope link", "route replace default via "+podGatewayIPv4+" dev eth0",
			"route replace default via "+podGatewayIPv6+" dev eth0")
	}
	w.Addrs = addrs
	if err := w.IP(ctx, inPod...); err != nil {
		return fmt.Errorf("giving pod %s its addresses: %w", w.Pod, err)
	}
	if err := w.Node.IP(ctx, onNode...); err != nil {
		return fmt.Errorf("making the routes to pod %s: %w", w.Pod, err)
	}
	return nil
}

// single returns the prefix of a single address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
