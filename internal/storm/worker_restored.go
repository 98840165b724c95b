package storm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// misrecord rewrites the record of a running pod's address as a datastore restored from a backup
// has it: it names a pod that no longer exists, under that pod's handle. From then on, Calico's
// collector may free the address, until a repair records it for the pod that uses it.
func (k *worker) misrecord(ctx context.Context) {
	if len(k.pods) == 0 || k.node == k.windows {
		return
	}
	p := k.pods[k.r.IntN(len(k.pods))]
	if p.misrecorded || p.visibility != plain || len(p.leases) != 1 || !p.due.IsZero() || k.checker.Taken(p.leases) {
		return
	}
	p.misrecorded = true
	k.serial++
	deleted := fmt.Sprintf("deleted%d-%d", k.id, k.serial)
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", k.Seed, deleted))
	handle := "k8s-pod-network." + hex.EncodeToString(sum[:])
	k.checker.Change(p.leases, func(u *Use) { u.Restored, u.Collectable = handle, true })
	err := persist(ctx, "restoring the record of "+p.name, func(ctx context.Context) error { return k.restoreRecord(ctx, p, deleted, handle) })
	if !final(err) { // the collector may have been faster
		k.troubles.add(err)
	}
	k.made.add("recorded for another pod")
}

func (k *worker) restoreRecord(ctx context.Context, p *pod, deleted, handle string) error {
	crd, addr := testcluster.CRDv1.Resource, p.addrs[0]
	state, err := k.cluster.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	for _, cidrs := range state.Blocks {
		for _, block := range cidrs {
			if !block.Contains(addr) {
				continue
			}
			err := k.cluster.Create(ctx, crd("ipamhandles"), map[string]any{
				"metadata": map[string]any{"name": handle},
				"spec":     map[string]any{"handleID": handle, "block": map[string]any{block.String(): int64(1)}},
			})
			if exists(err) != nil {
				return err
			}
			name := strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(block.String())
			err = k.cluster.Edit(ctx, crd("ipamblocks"), "", name, func(o map[string]any) { rename(o["spec"].(map[string]any), block, addr, p.handle, deleted, handle) })
			if err != nil {
				return err
			}
			return ignoreNotFound(k.cluster.Delete(ctx, crd("ipamhandles"), "", p.handle))
		}
	}
	return nil
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
