package lab

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// Names of the nodes.
const (
	// Owner owns the two blocks of the pool.
	Owner = "owner"
	// Borrower joined too late to get a block. Its pod uses an address of the owner's
	// blocks.
	Borrower = "borrower"
	// Third joined late as well. Its pod shows whether other nodes reach the borrower's
	// pod.
	Third = "third"
)

// NodeNames lists the nodes in the order of their addresses.
var NodeNames = []string{Owner, Borrower, Third}

// Wiring is how the nodes are connected.
type Wiring int

const (
	// Routed gives each node a link and a subnet of its own to the router.
	Routed Wiring = iota
	// Switched puts all nodes and the router on one link and in one subnet.
	Switched
)

// RouterIPv4 and RouterIPv6 are the router's own addresses, with which nodes peer in any
// wiring.
var (
	RouterIPv4 = netip.MustParseAddr("172.20.255.1")
	RouterIPv6 = netip.MustParseAddr("fd72:20:ff::1")
)

// Interface is a node's address of one family on its link, with the router's address
// there.
type Interface struct {
	Addr    netip.Prefix
	Gateway netip.Addr
}

// interfaces returns the addresses of the i-th node on its link, IPv4 first.
func (w Wiring) interfaces(i int) [2]Interface {
	v4, v6 := fmt.Sprintf("172.20.%d.", i), fmt.Sprintf("fd72:20:%d::", i)
	host := 2
	if w == Switched {
		v4, v6, host = "172.20.0.", "fd72:20::", 10+i
	}
	return [2]Interface{
		{netip.MustParsePrefix(fmt.Sprintf("%s%d/24", v4, host)), netip.MustParseAddr(v4 + "1")},
		{netip.MustParsePrefix(fmt.Sprintf("%s%d/64", v6, host)), netip.MustParseAddr(v6 + "1")},
	}
}

// forwarding lists the kernel parameters of a machine that forwards packets.
var forwarding = []string{
	"net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
	"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
	"net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0",
}

// newMachine creates a namespace that forwards packets.
func newMachine(tb testing.TB, name string) (Namespace, error) {
	ns, err := newNamespace(tb, name)
	if err != nil {
		return ns, err
	}
	if err := ns.Set(tb.Context(), forwarding...); err != nil {
		return ns, err
	}
	return ns, ns.IP(tb.Context(), "link set lo up")
}

// wire creates and connects the router and the nodes.
func (l *Lab) wire(tb testing.TB) (err error) {
	ctx := tb.Context()
	if l.Router, err = newMachine(tb, "router"); err != nil {
		return err
	}
	commands := []string{
		fmt.Sprintf("addr add %s/32 dev lo", RouterIPv4), fmt.Sprintf("addr add %s/128 dev lo nodad", RouterIPv6),
	}
	if l.Topology.Wiring == Switched {
		commands = append(commands, "link add br0 type bridge", "link set br0 up")
	}
	if err := l.Router.IP(ctx, commands...); err != nil {
		return err
	}
	for i, name := range NodeNames {
		node := &Node{Name: name, Interfaces: l.Topology.Interfaces(name)}
		if node.Namespace, err = newMachine(tb, name); err != nil {
			return err
		}
		l.Nodes[name] = node
		if err := l.connect(ctx, node, i == 0); err != nil {
			return fmt.Errorf("connecting node %s: %w", name, err)
		}
	}
	return nil
}

// connect creates the link between the router and a node.
func (l *Lab) connect(ctx context.Context, n *Node, first bool) error {
	port := "to-" + n.Name
	commands := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, n.name),
		fmt.Sprintf("link set %s up", port),
	}
	addressed := port
	if l.Topology.Wiring == Switched {
		commands = append(commands, fmt.Sprintf("link set %s master br0", port))
		addressed = "br0"
	}
	var own []string
	for _, i := range n.Interfaces {
		if l.Topology.Wiring == Routed || first {
			commands = append(commands, fmt.Sprintf("addr add %s/%d dev %s%s", i.Gateway, i.Addr.Bits(), addressed, nodad(i.Gateway)))
		}
		own = append(own, fmt.Sprintf("addr add %s dev eth0%s", i.Addr, nodad(i.Gateway)))
	}
	if err := l.Router.IP(ctx, commands...); err != nil {
		return err
	}
	own = append(own, "link set eth0 up")
	for _, i := range n.Interfaces {
		own = append(own, fmt.Sprintf("route add default via %s dev eth0", i.Gateway))
	}
	return n.IP(ctx, own...)
}

// nodad returns the option that makes an IPv6 address usable immediately.
func nodad(a netip.Addr) string {
	if a.Is6() {
		return " nodad"
	}
	return ""
}
