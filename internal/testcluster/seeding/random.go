package seeding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Random creates a state that depends on a seed. It has one or two pools of each family
// and a few nodes with all kinds of tunnels. Pods come and go in all ways that leave
// traces: killed without releasing their addresses, finished, waiting, terminating, on
// nodes that disappear. Strict affinity is switched on and off, addresses are released
// under running pods, and some handles are unreferenced. All objects are an hour old.
//
// The same seed creates the same state, except for random and time-dependent choices of
// Calico and the API server.
func Random(ctx context.Context, c *testcluster.Cluster, seed uint64) (err error) {
	defer wrap(&err, fmt.Sprintf("playing the random state of seed %d", seed))
	s, err := begin(ctx, c)
	if err != nil {
		return err
	}
	return (&randomState{Seeder: s, r: rand.New(rand.NewPCG(seed, seed)), addrs: map[string][]netip.Addr{}}).play(ctx)
}

type randomState struct {
	*Seeder
	r     *rand.Rand
	nodes []string
	pods  []Pod
	addrs map[string][]netip.Addr
	made  int
}

func (r *randomState) play(ctx context.Context) error {
	for i := range 1 + r.r.IntN(2) {
		v4 := apiv3.IPPoolSpec{CIDR: fmt.Sprintf("10.%d.0.0/%d", i, 25+r.r.IntN(3)), BlockSize: 28 + r.r.IntN(2), VXLANMode: apiv3.VXLANModeAlways}
		v6 := apiv3.IPPoolSpec{CIDR: fmt.Sprintf("fd00:%d::/%d", i, 120+r.r.IntN(3)), BlockSize: 124 + r.r.IntN(2), VXLANMode: apiv3.VXLANModeAlways}
		if err := errors.Join(r.Pool(ctx, fmt.Sprintf("four-%d", i), v4), r.Pool(ctx, fmt.Sprintf("six-%d", i), v6)); err != nil {
			return err
		}
	}
	for i := range 2 + r.r.IntN(3) {
		if err := r.addNode(ctx, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	for range 40 + r.r.IntN(40) {
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	return r.Cluster.Backdate(ctx, time.Hour)
}

func (r *randomState) addNode(ctx context.Context, name string) error {
	addr := netip.AddrFrom16([16]byte{0xfd, 1, 15: byte(len(r.nodes) + 1)})
	if err := r.Node(ctx, Node{Name: name, IPv6: netip.PrefixFrom(addr, 64)}); err != nil {
		return err
	}
	r.nodes = append(r.nodes, name)
	for _, t := range []Tunnel{VXLAN, VXLANv6, IPIP, WireGuard, WireGuardV6} {
		if r.r.IntN(3) > 0 {
			continue
		}
		if _, err := r.Tunnel(ctx, t, name); err != nil && !errors.Is(err, ErrNoAddress) {
			return err
		}
	}
	return nil
}

// step performs one random event of a cluster's life.
func (r *randomState) step(ctx context.Context) error {
	switch n := r.r.IntN(20); {
	case n < 10 || len(r.pods) == 0:
		return r.addPod(ctx)
	case n < 12:
		p := r.takePod()
		return r.DeletePod(ctx, p.Namespace, p.Name, true)
	case n < 14: // killed without a call of the CNI plugin
		p := r.takePod()
		return r.DeletePod(ctx, p.Namespace, p.Name, false)
	case n < 15:
		p := r.takePod()
		phase := []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[r.r.IntN(2)]
		return r.EndPod(ctx, p.Namespace, p.Name, phase, r.r.IntN(2) == 0)
	case n < 16:
		p := r.takePod()
		return r.TerminatePod(ctx, p.Namespace, p.Name, r.r.IntN(2) == 0)
	case n < 17: // an address is released by hand
		p := r.pods[r.r.IntN(len(r.pods))]
		if a := r.addrs[p.Name]; len(a) > 0 && r.r.IntN(2) == 0 {
			r.addrs[p.Name] = nil
			return r.ReleaseIP(ctx, a[0])
		}
		return nil
	case n < 18:
		r.made++
		id := fmt.Sprintf("k8s-pod-network.orphan-%d", r.made)
		return r.Cluster.Create(ctx, testcluster.CRDv1.Resource("ipamhandles"), map[string]any{
			"metadata": map[string]any{"name": id},
			"spec":     map[string]any{"handleID": id, "block": map[string]any{"10.0.0.0/28": int64(1)}, "deleted": false},
		})
	case n < 19:
		return r.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true, StrictAffinity: r.r.IntN(2) == 0})
	default:
		return r.loseNode(ctx)
	}
}

func (r *randomState) addPod(ctx context.Context) error {
	r.made++
	p := Pod{Namespace: "default", Name: fmt.Sprintf("pod-%d", r.made), Node: r.nodes[r.r.IntN(len(r.nodes))]}
	switch r.r.IntN(8) {
	case 0:
		p.Waiting = true
	case 1, 2, 3:
		p.DualStack = true
	case 4:
		p.IPv6Only = true
	}
	addrs, err := r.Pod(ctx, p)
	if err != nil && !errors.Is(err, ErrNoAddress) {
		return err
	}
	r.pods = append(r.pods, p)
	r.addrs[p.Name] = addrs
	return nil
}

func (r *randomState) takePod() Pod {
	i := r.r.IntN(len(r.pods))
	p := r.pods[i]
	r.pods = append(r.pods[:i], r.pods[i+1:]...)
	return p
}

// loseNode deletes a node and, like Kubernetes' pod garbage collector, its pods. Their
// IPAM objects stay.
func (r *randomState) loseNode(ctx context.Context) error {
	if len(r.nodes) < 2 {
		return nil
	}
	i := r.r.IntN(len(r.nodes))
	name := r.nodes[i]
	r.nodes = append(r.nodes[:i], r.nodes[i+1:]...)
	kept := r.pods[:0]
	for _, p := range r.pods {
		if p.Node != name {
			kept = append(kept, p)
			continue
		}
		if err := r.DeletePod(ctx, p.Namespace, p.Name, false); err != nil {
			return err
		}
	}
	r.pods = kept
	return r.DeleteNode(ctx, name)
}
