package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
)

// Affinity writes an affinity of a node to a block, whoever owns the block, as
// Calico's IPAM writes them: with the labels by which Calico's components look for
// those of a node. The state may be empty.
func (s *Seeder) Affinity(ctx context.Context, node string, block netip.Prefix, state string) error {
	kvp := affinityKVP(node, block)
	kvp.Value = &model.BlockAffinity{State: model.BlockAffinityState(state)}
	return s.withBackend(func(b bapi.Client) error {
		if _, err := b.Create(ctx, kvp); err != nil {
			return fmt.Errorf("creating the affinity of node %s to %s: %w", node, block, err)
		}
		return nil
	})
}

// DeleteAffinity deletes an affinity, and not its block.
func (s *Seeder) DeleteAffinity(ctx context.Context, node string, block netip.Prefix) error {
	return s.withBackend(func(b bapi.Client) error {
		kvp, err := b.Get(ctx, affinityKVP(node, block).Key, "")
		if err == nil {
			_, err = b.DeleteKVP(ctx, kvp)
		}
		if err != nil {
			return fmt.Errorf("deleting the affinity of node %s to %s: %w", node, block, err)
		}
		return nil
	})
}

func affinityKVP(node string, block netip.Prefix) *model.KVPair {
	return &model.KVPair{Key: model.BlockAffinityKey{CIDR: calicoNet(block), Host: node, AffinityType: string(ipam.AffinityTypeHost)}}
}

func (s *Seeder) withBackend(do func(bapi.Client) error) error {
	with, ok := s.Calico.(interface{ Backend() bapi.Client })
	if !ok {
		return errors.New("the client of Calico does not give out its backend")
	}
	return do(with.Backend())
}
