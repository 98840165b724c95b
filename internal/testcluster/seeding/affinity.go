package seeding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
)

// Affinity creates an affinity of a node to a block, even if another node owns the block.
// As in Calico's IPAM, it has the labels that Calico's components use to find a node's
// affinities. The state may be empty.
func (s *Seeder) Affinity(ctx context.Context, node string, block netip.Prefix, state string) error {
	backend, err := s.backend()
	if err == nil {
		value := &model.BlockAffinity{State: model.BlockAffinityState(state)}
		_, err = backend.Create(ctx, &model.KVPair{Key: affinityKey(node, block), Value: value})
	}
	if err != nil {
		return fmt.Errorf("creating the affinity of node %s to %s: %w", node, block, err)
	}
	return nil
}

// DeleteAffinity deletes an affinity, but not its block.
func (s *Seeder) DeleteAffinity(ctx context.Context, node string, block netip.Prefix) error {
	backend, err := s.backend()
	var kvp *model.KVPair
	if err == nil {
		kvp, err = backend.Get(ctx, affinityKey(node, block), "")
	}
	if err == nil {
		_, err = backend.DeleteKVP(ctx, kvp)
	}
	if err != nil {
		return fmt.Errorf("deleting the affinity of node %s to %s: %w", node, block, err)
	}
	return nil
}

func affinityKey(node string, block netip.Prefix) model.BlockAffinityKey {
	return model.BlockAffinityKey{CIDR: calicoNet(block), Host: node, AffinityType: string(ipam.AffinityTypeHost)}
}

// backend returns the datastore below Calico's client.
func (s *Seeder) backend() (bapi.Client, error) {
	with, ok := s.Calico.(interface{ Backend() bapi.Client })
	if !ok {
		return nil, errors.New("the client of Calico does not give out its backend")
	}
	return with.Backend(), nil
}
