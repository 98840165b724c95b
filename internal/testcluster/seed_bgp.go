package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// TopOfRack turns the node-to-node mesh off and has all nodes, in one AS, peer
// with a router of another AS: the topology in which an owner never learns a
// route to a borrowed address, because it comes back with the owner's own AS in
// its path.
func (s *Seeder) TopOfRack(ctx context.Context, nodesAS uint32, router netip.Addr, routerAS uint32) error {
	mesh, as := false, numorstring.ASNumber(nodesAS)
	config := apiv3.NewBGPConfiguration()
	config.Name = "default"
	config.Spec = apiv3.BGPConfigurationSpec{NodeToNodeMeshEnabled: &mesh, ASNumber: &as, LogSeverityScreen: "Info"}
	peer := apiv3.NewBGPPeer()
	peer.Name = "top-of-rack"
	peer.Spec = apiv3.BGPPeerSpec{PeerIP: router.String(), ASNumber: numorstring.ASNumber(routerAS)}

	_, configErr := s.Calico.BGPConfigurations().Create(ctx, config, options.SetOptions{})
	_, peerErr := s.Calico.BGPPeers().Create(ctx, peer, options.SetOptions{})
	if err := errors.Join(configErr, peerErr); err != nil {
		return fmt.Errorf("writing the BGP configuration: %w", err)
	}
	return nil
}
