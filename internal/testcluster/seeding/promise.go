package seeding

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Seat is where a pod may start: on a node, in a namespace, with or without annotations that
// name pools.
type Seat struct {
	Node, Namespace string
	// V4Pools and V6Pools are the values of the pod's annotations.
	V4Pools, V6Pools string
	IPv6             bool
}

// Promise is what Calico's client gives the next pod of a seat in every order that was tried:
// an address of a block that its node owns then, and any address.
type Promise struct{ Own, Any bool }

// Seats returns where the next pod may start, for each node and each family that has pools: as a
// pod like each existing pod, as one of that pod's namespace without requests, and as one of a
// namespace without labels.
func (s *Seeder) Seats(ctx context.Context) (out []Seat, err error) {
	nodes, err := s.Cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := s.podsWithAddresses(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := s.Calico.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	for _, v6 := range []bool{false, true} {
		if !slices.ContainsFunc(pools.Items, func(p apiv3.IPPool) bool { return strings.Contains(p.Spec.CIDR, ":") == v6 }) {
			continue
		}
		for i := range nodes.Items {
			name := nodes.Items[i].Name
			all := []Seat{{Node: name, Namespace: metav1.NamespaceDefault, IPv6: v6}}
			for j := range pods {
				if p := &pods[j]; p.Spec.NodeName == name {
					all = append(all, Seat{Node: name, Namespace: p.Namespace, IPv6: v6}, Seat{
						Node: name, Namespace: p.Namespace, IPv6: v6, V4Pools: p.Annotations[cniAnnotation+"ipv4pools"], V6Pools: p.Annotations[cniAnnotation+"ipv6pools"],
					})
				}
			}
			for _, seat := range all {
				if !slices.Contains(out, seat) {
					out = append(out, seat)
				}
			}
		}
	}
	return out, nil
}

// Promises returns what the next pod of each given seat gets, once every other node of all seats
// without a free address of its own has claimed a block: in every order, or in the given number of
// random ones. Addresses that pods use without a record are recorded first. At the end the cluster
// is restored.
func (s *Seeder) Promises(ctx context.Context, seats, all []Seat, orders int, rnd *rand.Rand) (_ map[Seat]Promise, err error) {
	asBefore, err := s.Cluster.Save(ctx, ipamKinds("ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs")...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if back := asBefore(context.WithoutCancel(ctx)); err == nil {
			err = back
		}
	}()
	if err := s.recordPods(ctx); err != nil {
		return nil, err
	}
	rewind, err := s.Cluster.Save(ctx, ipamKinds("ipamblocks", "blockaffinities", "ipamhandles")...)
	if err != nil {
		return nil, err
	}
	owners, err := s.owners(ctx)
	if err != nil {
		return nil, err
	}
	lacking := map[bool]map[string][]Seat{false: {}, true: {}}
	for _, seat := range all {
		if got := s.next(ctx, seat); !got.IsValid() || owners[got.Masked()] != seat.Node {
			lacking[seat.IPv6][seat.Node] = append(lacking[seat.IPv6][seat.Node], seat)
		}
		if err := rewind(ctx); err != nil {
			return nil, err
		}
	}
	out := map[Seat]Promise{}
	for _, seat := range seats {
		var others []string
		for node := range lacking[seat.IPv6] {
			if node != seat.Node {
				others = append(others, node)
			}
		}
		slices.Sort(others)
		p := Promise{Own: true, Any: true}
		for _, order := range someOrders(others, orders, rnd) {
			for _, node := range order {
				for _, other := range lacking[seat.IPv6][node] {
					if got := s.next(ctx, other); got.IsValid() {
						_, _, _ = s.Calico.IPAM().ReleaseIPs(ctx, ipam.ReleaseOptions{Address: got.Addr().String()}) // the block is what counts
					}
				}
			}
			got := s.next(ctx, seat)
			owners, err := s.owners(ctx)
			if err != nil {
				return nil, err
			}
			p.Any = p.Any && got.IsValid()
			p.Own = p.Own && got.IsValid() && owners[got.Masked()] == seat.Node
			if err := rewind(ctx); err != nil {
				return nil, err
			}
		}
		out[seat] = p
	}
	return out, ctx.Err()
}

// someOrders returns n random orders of the names. For fewer than three names, it returns every
// order.
func someOrders(names []string, n int, rnd *rand.Rand) (out [][]string) {
	if len(names) < 3 {
		back := slices.Clone(names)
		slices.Reverse(back)
		return slices.CompactFunc([][]string{names, back}, slices.Equal)
	}
	for range n {
		order := slices.Clone(names)
		rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		out = append(out, order)
	}
	return out
}

// next starts a pod of a seat as Calico's CNI plugin does, which a kubelet calls again. It
// returns the address with the length of its block's prefix; the zero prefix if it gets none.
func (s *Seeder) next(ctx context.Context, seat Seat) netip.Prefix {
	p := Pod{Namespace: seat.Namespace, Name: "next-" + fmt.Sprint(s.nextPod.Add(1)), Node: seat.Node, IPv6Only: seat.IPv6, Annotations: map[string]string{
		cniAnnotation + "ipv4pools": seat.V4Pools, cniAnnotation + "ipv6pools": seat.V6Pools,
	}}
	namespace, err := s.Cluster.Kube.CoreV1().Namespaces().Get(ctx, p.Namespace, metav1.GetOptions{})
	if err != nil {
		return netip.Prefix{}
	}
	args, err := podArgs(p, namespace)
	if err != nil {
		return netip.Prefix{}
	}
	if args.IPv4Pools, err = s.poolsByAnnotation(ctx, p, namespace, "ipv4pools"); err != nil {
		return netip.Prefix{}
	}
	if args.IPv6Pools, err = s.poolsByAnnotation(ctx, p, namespace, "ipv6pools"); err != nil {
		return netip.Prefix{}
	}
	for range 3 {
		v4, v6, _ := s.Calico.IPAM().AutoAssign(ctx, args)
		for _, assigned := range []*ipam.IPAMAssignments{v4, v6} {
			if assigned != nil && len(assigned.IPs) > 0 {
				return netip.MustParsePrefix(assigned.IPs[0].String())
			}
		}
	}
	return netip.Prefix{}
}

// owners returns the node that owns each block.
func (s *Seeder) owners(ctx context.Context) (map[netip.Prefix]string, error) {
	stored, err := s.Cluster.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return nil, err
	}
	out := map[netip.Prefix]string{}
	for owner, owned := range stored.Blocks {
		for _, b := range owned {
			out[b] = owner
		}
	}
	return out, nil
}

// recordPods records the addresses that pods use and no block records, each for its pod's
// node, which claims the block if there is none.
func (s *Seeder) recordPods(ctx context.Context) error {
	config, err := s.Calico.IPAM().GetIPAMConfig(ctx)
	if err != nil {
		return fmt.Errorf("reading the IPAM configuration: %w", err)
	}
	pods, err := s.podsWithAddresses(ctx)
	if err != nil {
		return err
	}
	if err := s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}); err != nil {
		return err
	}
	for i := range pods {
		handle := "used." + pods[i].Name
		for _, ip := range pods[i].Status.PodIPs {
			// The error says that the address is recorded, or lies in no pool.
			_ = s.Calico.IPAM().AssignIP(ctx, ipam.AssignIPArgs{IP: cnet.IP{IP: net.ParseIP(ip.IP)}, HandleID: &handle, Hostname: pods[i].Spec.NodeName})
		}
	}
	return s.SetIPAMConfig(ctx, *config)
}

// podsWithAddresses returns the pods of nodes that are not on their host's network and have
// not ended.
func (s *Seeder) podsWithAddresses(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.Cluster.Kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.HostNetwork || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

func ipamKinds(plurals ...string) (out []testcluster.Resource) {
	for _, plural := range plurals {
		out = append(out, testcluster.CRDv1.Resource(plural))
	}
	return out
}
