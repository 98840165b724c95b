package seeding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const cniAnnotation = "cni.projectcalico.org/"

// allocate requests a pod's addresses as Calico's CNI plugin does: see CmdAddK8s
// (cni-plugin/pkg/k8s/k8s.go) for the annotations, where the pod's take precedence over
// its namespace's, and cmdAdd (cni-plugin/pkg/ipamplugin) for the request. Pods on the
// host network and waiting pods get no address.
func (s *Seeder) allocate(ctx context.Context, p Pod) ([]netip.Addr, error) {
	if p.HostNetwork || p.Waiting {
		return nil, nil
	}
	namespace, err := s.Cluster.Kube.CoreV1().Namespaces().Get(ctx, p.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("allocating for pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	args, err := podArgs(p, namespace)
	if err != nil {
		return nil, err
	}
	if fixed := p.Annotations[cniAnnotation+"ipAddrs"]; fixed != "" {
		return s.assignFixed(ctx, p, fixed, *args.HandleID, args.Attrs)
	}
	if args.IPv4Pools, err = s.poolsByAnnotation(ctx, p, namespace, "ipv4pools"); err != nil {
		return nil, err
	}
	if args.IPv6Pools, err = s.poolsByAnnotation(ctx, p, namespace, "ipv6pools"); err != nil {
		return nil, err
	}
	addrs, err := s.autoAssign(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return addrs, nil
}

// podArgs returns the request for a pod's addresses, without the pools.
func podArgs(p Pod, namespace *corev1.Namespace) (ipam.AutoAssignArgs, error) {
	handle := sandboxHandle(p.sandboxID())
	args := ipam.AutoAssignArgs{
		HandleID: &handle,
		Attrs: map[string]string{
			ipam.AttributeNode: p.Node, ipam.AttributeTimestamp: timestamp(),
			ipam.AttributePod: p.Name, ipam.AttributeNamespace: p.Namespace,
		},
		Hostname:    p.Node,
		IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		Namespace:   namespace,
	}
	var err error
	args.Num4, args.Num6, err = families(p, namespace)
	return args, err
}

// autoAssign returns all requested addresses, or an error that wraps ErrNoAddress.
func (s *Seeder) autoAssign(ctx context.Context, args ipam.AutoAssignArgs) ([]netip.Addr, error) {
	return autoAssign(ctx, s.Calico.IPAM(), args)
}

func autoAssign(ctx context.Context, client ipam.Interface, args ipam.AutoAssignArgs) ([]netip.Addr, error) {
	v4, v6, err := client.AutoAssign(ctx, args)
	var addrs []netip.Addr
	for _, assigned := range []*ipam.IPAMAssignments{v4, v6} {
		if assigned == nil {
			continue
		}
		for _, ip := range assigned.IPs {
			addr, _ := netip.AddrFromSlice(ip.IP)
			addrs = append(addrs, addr.Unmap())
		}
		if err == nil {
			err = assigned.PartialFulfillmentError()
		}
	}
	if err == nil {
		return addrs, nil
	}
	// The CNI plugin also releases the address of the other family.
	for _, addr := range addrs {
		if _, _, releaseErr := client.ReleaseIPs(ctx, ipam.ReleaseOptions{Address: addr.String()}); releaseErr != nil {
			return nil, fmt.Errorf("releasing %s: %w", addr, releaseErr)
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrNoAddress, err)
}

// assignFixed assigns the addresses of an ipAddrs annotation.
func (s *Seeder) assignFixed(ctx context.Context, p Pod, fixed, handle string, attrs map[string]string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	if err := json.Unmarshal([]byte(fixed), &addrs); err != nil {
		return nil, fmt.Errorf("pod %s/%s: reading ipAddrs: %w", p.Namespace, p.Name, err)
	}
	for _, addr := range addrs {
		err := s.Calico.IPAM().AssignIP(ctx, ipam.AssignIPArgs{
			IP: cnet.IP{IP: net.IP(addr.AsSlice())}, HandleID: &handle, Hostname: p.Node, Attrs: attrs,
		})
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w: %s: %w", p.Namespace, p.Name, ErrNoAddress, addr, err)
		}
	}
	return addrs, nil
}

// families returns the number of addresses of each family that a pod requests.
func families(p Pod, namespace *corev1.Namespace) (v4, v6 int, err error) {
	annotated := annotation(p, namespace, "ipFamilies")
	switch {
	case annotated == "" && p.DualStack:
		return 1, 1, nil
	case annotated == "" && p.IPv6Only:
		return 0, 1, nil
	case annotated == "":
		return 1, 0, nil
	}
	var names []string
	if err := json.Unmarshal([]byte(annotated), &names); err != nil {
		return 0, 0, fmt.Errorf("pod %s/%s: reading ipFamilies: %w", p.Namespace, p.Name, err)
	}
	for _, name := range names {
		switch name {
		case "IPv4":
			v4 = 1
		case "IPv6":
			v6 = 1
		default:
			return 0, 0, fmt.Errorf("pod %s/%s: no such family: %q", p.Namespace, p.Name, name)
		}
	}
	return v4, v6, nil
}

// poolsByAnnotation resolves the pools that a pod or its namespace requests by name or
// CIDR (ResolvePools of cni-plugin/internal/pkg/utils/utils.go).
func (s *Seeder) poolsByAnnotation(ctx context.Context, p Pod, namespace *corev1.Namespace, key string) ([]cnet.IPNet, error) {
	annotated := annotation(p, namespace, key)
	if annotated == "" {
		return nil, nil
	}
	var wanted []string
	if err := json.Unmarshal([]byte(annotated), &wanted); err != nil {
		return nil, fmt.Errorf("pod %s/%s: reading %s: %w", p.Namespace, p.Name, key, err)
	}
	pools, err := s.Calico.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	cidrs := map[string]string{}
	for _, pool := range pools.Items {
		cidrs[pool.Name] = pool.Spec.CIDR
	}
	var nets []cnet.IPNet
	for _, name := range wanted {
		if cidr, ok := cidrs[name]; ok {
			name = cidr
		}
		_, cidr, err := cnet.ParseCIDR(name)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w: no such pool: %q", p.Namespace, p.Name, ErrNoAddress, name)
		}
		nets = append(nets, *cidr)
	}
	return nets, nil
}

func annotation(p Pod, namespace *corev1.Namespace, key string) string {
	if v := p.Annotations[cniAnnotation+key]; v != "" {
		return v
	}
	return namespace.Annotations[cniAnnotation+key]
}

// ReleaseHandle releases all addresses of a handle, as CNI DEL does. A handle without
// addresses is not an error.
func (s *Seeder) ReleaseHandle(ctx context.Context, handle string) error {
	err := s.Calico.IPAM().ReleaseByHandle(ctx, handle)
	if missing := (cerrors.ErrorResourceDoesNotExist{}); err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("releasing handle %s: %w", handle, err)
	}
	return nil
}

// ReleaseIP releases one address, even if it is in use.
func (s *Seeder) ReleaseIP(ctx context.Context, addr netip.Addr) error {
	unallocated, _, err := s.Calico.IPAM().ReleaseIPs(ctx, ipam.ReleaseOptions{Address: addr.String()})
	if err == nil && len(unallocated) > 0 {
		err = errors.New("it is not allocated")
	}
	if err != nil {
		return fmt.Errorf("releasing %s: %w", addr, err)
	}
	return nil
}

// ClaimBlocks makes a node the owner of all blocks in a CIDR. Calico's client creates
// missing blocks. It is an error if another node owns one of them.
func (s *Seeder) ClaimBlocks(ctx context.Context, node string, cidr netip.Prefix) error {
	_, failed, err := s.Calico.IPAM().ClaimAffinity(ctx, calicoNet(cidr), hostAffinity(node))
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("others own %v", failed)
	}
	if err != nil {
		return fmt.Errorf("claiming %s for node %s: %w", cidr, node, err)
	}
	return nil
}

// ReleaseBlocks releases a node's affinity to the blocks in a CIDR. Empty blocks are
// deleted. Other blocks remain without an owner, or are an error if mustBeEmpty is set.
func (s *Seeder) ReleaseBlocks(ctx context.Context, node string, cidr netip.Prefix, mustBeEmpty bool) error {
	if err := s.Calico.IPAM().ReleaseAffinity(ctx, calicoNet(cidr), node, mustBeEmpty); err != nil {
		return fmt.Errorf("releasing %s of node %s: %w", cidr, node, err)
	}
	return nil
}

func hostAffinity(node string) ipam.AffinityConfig {
	return ipam.AffinityConfig{AffinityType: ipam.AffinityTypeHost, Host: node}
}

func calicoNet(p netip.Prefix) cnet.IPNet {
	p = p.Masked()
	return cnet.IPNet{IPNet: net.IPNet{
		IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
}

// OnWindows asks for an address as the CNI plugin of a Windows node does, and returns the error.
func (s *Seeder) OnWindows(ctx context.Context, node string) error {
	args := ipam.AutoAssignArgs{
		Num4: 1, Hostname: node, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		HostReservedAttrIPv4s: &ipam.HostReservedAttr{StartOfBlock: 3, EndOfBlock: 1, Handle: ipam.WindowsReservedHandle},
	}
	_, err := s.autoAssign(context.WithValue(ctx, "windowsHost", "windows"), args) //nolint:staticcheck // libcalico-go's key
	return err
}
