package storm

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// crash plays clients that die in the middle of claiming and releasing blocks, and people
// who delete objects by hand. They leave affinities without blocks in every state, blocks
// without affinities, and objects marked deleted. They never touch an address in use.
func (w *World) crash(ctx context.Context, client *Client, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(100+r.IntN(500))*time.Millisecond)
		n := w.nodes[r.IntN(len(w.nodes))]
		block := someBlock(r)
		dies := r.IntN(3) > 0
		if dies {
			client.FaultProxy.Die(1+r.IntN(5), r.IntN(2) == 0)
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		what := ""
		switch r.IntN(7) {
		case 0, 1:
			what = "claim"
			_, _, _ = client.IPAM.ClaimAffinity(call, block, host(n.name))
		case 2, 3:
			what = "block release"
			_ = client.IPAM.ReleaseAffinity(call, block, n.name, true)
		case 4:
			what = "host release"
			_ = client.IPAM.ReleaseHostAffinities(call, host(n.name), true)
		case 5:
			what = "affinity deleted by hand"
			w.loseAffinity(call, r)
		case 6:
			what = "block ensured"
			_, _, _ = client.IPAM.EnsureBlock(call, ipam.BlockArgs{Hostname: n.name, IPv4Pools: []cnet.IPNet{cnet.MustParseCIDR(pools["four"].CIDR)}})
		}
		cancel()
		if client.FaultProxy.Reset() {
			what = "died in " + what
		}
		w.made.add(what)
	}
}

// loseAffinity deletes a random affinity, as people do with kubectl.
func (w *World) loseAffinity(ctx context.Context, r *rand.Rand) {
	resource := testcluster.CRDv1.Resource("blockaffinities")
	all, err := w.cluster.List(ctx, resource)
	// Only Calico's own controller restores affinities of LoadBalancer blocks.
	all = slices.DeleteFunc(all, func(u unstructured.Unstructured) bool {
		return strings.HasPrefix(u.GetName(), apiv3.VirtualLoadBalancer)
	})
	if err == nil && len(all) > 0 {
		_ = w.cluster.Delete(ctx, resource, "", all[r.IntN(len(all))].GetName())
	}
}

// someBlock returns a random block of one of the pools.
func someBlock(r *rand.Rand) cnet.IPNet {
	name := []string{"four", "four", "fixed", "six"}[r.IntN(4)]
	pool := netip.MustParsePrefix(pools[name].CIDR)
	size := pools[name].BlockSize
	addr := pool.Addr()
	for range r.IntN(1<<(size-pool.Bits())) << (addr.BitLen() - size) {
		addr = addr.Next()
	}
	return cnet.IPNet{IPNet: net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(size, addr.BitLen())}}
}
