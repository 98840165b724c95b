package storm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// misrecord rewrites the record of a running pod's address as a datastore restored from a backup
// has it: it names a pod that no longer exists or now has another address, under that pod's earlier
// handle. From then on, Calico's collector may free the address, until a repair records it for the
// pod that uses it. Most pods end before a repair has seen them twice, so each worker keeps one for
// a while. That pod may end at any moment of a repair or of the collector.
func (k *worker) misrecord(ctx context.Context) {
	may := slices.DeleteFunc(slices.Clone(k.pods), func(p *pod) bool {
		return p.misrecorded || p.visibility != plain || len(p.leases) != 1 || !p.due.IsZero() || k.checker.Taken(p.leases)
	})
	if len(may) == 0 || k.node == k.windows {
		return
	}
	p := may[k.r.IntN(len(may))]
	p.misrecorded = true
	if now := time.Now(); !slices.ContainsFunc(k.pods, func(o *pod) bool { return now.Before(o.stays) }) {
		p.stays = now.Add(time.Duration(4+k.r.IntN(26)) * time.Second)
	}
	k.serial++
	before := fmt.Sprintf("deleted%d-%d", k.id, k.serial)
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", k.Seed, before))
	if o := k.pods[k.r.IntN(len(k.pods))]; o != p && o.namespace == p.namespace && k.r.IntN(2) == 0 {
		before = o.name
	}
	handle := "k8s-pod-network." + hex.EncodeToString(sum[:])
	k.checker.Change(p.leases, func(u *Use) { u.Restored, u.Collectable = handle, true })
	err := persist(ctx, "restoring the record of "+p.name, func(ctx context.Context) error {
		return restoreRecord(ctx, k.cluster, netip.PrefixFrom(p.addrs[0], 30).Masked(), p.addrs[0], p.handle, before, handle)
	})
	if !final(err) { // the collector may have been faster
		k.troubles.add(err)
	}
	k.made.add("recorded for another pod")
}

// restoreRecord makes a block record an address for another pod, under another handle, if it has
// the given handle.
func restoreRecord(ctx context.Context, c *testcluster.Cluster, block netip.Prefix, addr netip.Addr, from, pod, handle string) error {
	crd := testcluster.CRDv1.Resource
	err := c.Create(ctx, crd("ipamhandles"), map[string]any{
		"metadata": map[string]any{"name": handle},
		"spec":     map[string]any{"handleID": handle, "block": map[string]any{block.String(): int64(1)}},
	})
	if exists(err) != nil {
		return err
	}
	err = c.Edit(ctx, crd("ipamblocks"), "", blockName(block), func(o map[string]any) { rename(o["spec"].(map[string]any), block, addr, from, pod, handle) })
	if err != nil {
		return err
	}
	return ignoreNotFound(c.Delete(ctx, crd("ipamhandles"), "", from))
}

// rename makes a block's allocation of an address name another pod and handle, if it still has the
// given handle.
func rename(spec map[string]any, block netip.Prefix, addr netip.Addr, from, pod, handle string) {
	ordinal := 0
	for a := block.Addr(); a != addr; a = a.Next() {
		ordinal++
	}
	i, ok := spec["allocations"].([]any)[ordinal].(int64)
	if !ok {
		return
	}
	if attr := spec["attributes"].([]any)[i].(map[string]any); attr["handle_id"] == from {
		attr["handle_id"] = handle
		attr["secondary"].(map[string]any)[ipam.AttributePod] = pod
	}
}
