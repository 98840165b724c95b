package seeding

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// TopOfRack disables the node-to-node mesh and makes all nodes, in one AS, peer with a
// router in another AS. In this topology the owner of a block never accepts a route to a
// borrowed address, because the path of the route contains the owner's own AS.
func (s *Seeder) TopOfRack(ctx context.Context, nodesAS uint32, router netip.Addr, routerAS uint32) error {
	return errors.Join(
		s.BGPConfig(ctx, false, nodesAS),
		s.BGPPeer(ctx, "top-of-rack", apiv3.BGPPeerSpec{PeerIP: router.String(), ASNumber: numorstring.ASNumber(routerAS)}),
	)
}

// BGPConfig creates or updates the cluster's BGP configuration: the node-to-node mesh,
// and the AS number of nodes without their own.
func (s *Seeder) BGPConfig(ctx context.Context, mesh bool, as uint32) error {
	number := numorstring.ASNumber(as)
	configs := s.Calico.BGPConfigurations()
	config, err := configs.Get(ctx, "default", options.GetOptions{})
	if missing := (cerrors.ErrorResourceDoesNotExist{}); errors.As(err, &missing) {
		config = apiv3.NewBGPConfiguration()
		config.Name = "default"
		config.Spec = apiv3.BGPConfigurationSpec{NodeToNodeMeshEnabled: &mesh, ASNumber: &number, LogSeverityScreen: "Info"}
		_, err = configs.Create(ctx, config, options.SetOptions{})
	} else if err == nil {
		config.Spec.NodeToNodeMeshEnabled, config.Spec.ASNumber = &mesh, &number
		_, err = configs.Update(ctx, config, options.SetOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the BGP configuration: %w", err)
	}
	return nil
}

// BGPPeer creates a BGPPeer through Calico's client, which validates it.
func (s *Seeder) BGPPeer(ctx context.Context, name string, spec apiv3.BGPPeerSpec) error {
	peer := apiv3.NewBGPPeer()
	peer.Name, peer.Spec = name, spec
	if _, err := s.Calico.BGPPeers().Create(ctx, peer, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating BGPPeer %s: %w", name, err)
	}
	return nil
}

// DeleteBGPPeer deletes a BGPPeer.
func (s *Seeder) DeleteBGPPeer(ctx context.Context, name string) error {
	if _, err := s.Calico.BGPPeers().Delete(ctx, name, options.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting BGPPeer %s: %w", name, err)
	}
	return nil
}

// BGPFilter creates a BGPFilter through Calico's client, which validates it. Peers refer
// to it by name.
func (s *Seeder) BGPFilter(ctx context.Context, name string, spec apiv3.BGPFilterSpec) error {
	filter := apiv3.NewBGPFilter()
	filter.Name, filter.Spec = name, spec
	if _, err := s.Calico.BGPFilter().Create(ctx, filter, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating BGPFilter %s: %w", name, err)
	}
	return nil
}

// DeleteBGPFilter deletes a BGPFilter.
func (s *Seeder) DeleteBGPFilter(ctx context.Context, name string) error {
	if _, err := s.Calico.BGPFilter().Delete(ctx, name, options.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting BGPFilter %s: %w", name, err)
	}
	return nil
}

// NodeBGP sets a Node's own AS number, and the BGP cluster ID that makes it a route
// reflector; 0 and "" remove them.
func (s *Seeder) NodeBGP(ctx context.Context, name string, as uint32, reflectorID string) error {
	annotations := map[string]any{"projectcalico.org/ASNumber": nil, "projectcalico.org/RouteReflectorClusterID": nil}
	if as != 0 {
		annotations["projectcalico.org/ASNumber"] = strconv.FormatUint(uint64(as), 10)
	}
	if reflectorID != "" {
		annotations["projectcalico.org/RouteReflectorClusterID"] = reflectorID
	}
	return s.patchNode(ctx, name, map[string]any{"annotations": annotations})
}
