package lab

import (
	"context"
	"errors"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// nodeTopologies have nodes that learn routes from each other. Without encapsulation the
// nodes need a common link, because the router has no routes to pods.
var nodeTopologies = []Topology{
	{
		Name:      "node-to-node mesh",
		Wiring:    Switched,
		Configure: mesh,
	},
	{
		Name:       "node-to-node mesh across a router that knows no pods",
		LostBeyond: "the router",
		Configure:  mesh,
	},
	{
		Name:      "node-to-node mesh, each node in its own AS",
		Wiring:    Switched,
		AS:        ownAS,
		Configure: mesh,
	},
	{
		Name:      "node-to-node mesh, each node in its own AS and subnet",
		AS:        ownAS,
		Down:      "Mesh_",
		Configure: mesh,
	},
	{
		Name:             "node-to-node mesh, pools with `disableBGPExport`",
		Wiring:           Switched,
		DisableBGPExport: true,
		Configure:        mesh,
	},
	{
		Name:      "a third node reflects routes",
		Wiring:    Switched,
		Reflector: Third,
		Configure: hub,
	},
	{
		Name:      "a third node reflects routes, and the node-to-node mesh",
		Wiring:    Switched,
		Reflector: Third,
		Configure: func(ctx context.Context, s *seeding.Seeder) error { return errors.Join(hub(ctx, s), mesh(ctx, s)) },
	},
	{
		Name:      "the owner reflects routes",
		Wiring:    Switched,
		Reflector: Owner,
		Configure: hub,
	},
	{
		Name:      "the borrower reflects routes",
		Wiring:    Switched,
		Reflector: Borrower,
		Configure: hub,
	},
	{
		Name:      "BGPPeers with a third node only, which is no route reflector",
		Wiring:    Switched,
		Hub:       Third,
		Configure: hub,
	},
	{
		Name:      "BGPPeers with a third node only, each node in its own AS",
		Wiring:    Switched,
		AS:        ownAS,
		Hub:       Third,
		Configure: hub,
	},
	{
		Name:      "BGPPeers between all nodes",
		Wiring:    Switched,
		Configure: peers(apiv3.BGPFilterSpec{}),
	},
	{
		Name:      "BGPPeers between all nodes, a BGPFilter rejects single addresses on export",
		Wiring:    Switched,
		Configure: peers(apiv3.BGPFilterSpec{ExportV4: singles4, ExportV6: singles6}),
	},
	{
		Name:      "BGPPeers between all nodes, a BGPFilter rejects single addresses on import",
		Wiring:    Switched,
		Configure: peers(apiv3.BGPFilterSpec{ImportV4: singles4, ImportV6: singles6}),
	},
	{
		Name:      "BGPPeers between all nodes, a BGPFilter rejects routes of pods' interfaces on export",
		Wiring:    Switched,
		Configure: peers(apiv3.BGPFilterSpec{ExportV4: ofPods4, ExportV6: ofPods6}),
	},
	{
		Name:             "BGPPeers between all nodes, a BGPFilter accepts single addresses, pools with `disableBGPExport`",
		Wiring:           Switched,
		DisableBGPExport: true,
		Configure:        peers(apiv3.BGPFilterSpec{ExportV4: accept4, ExportV6: accept6}),
	},
	{
		Name:   "BGPPeers between all nodes with the BGPFilter that rejects, and the node-to-node mesh",
		Wiring: Switched,
		// BIRD starts the first of two configured sessions with the same node.
		Down: "Node_",
		Configure: func(ctx context.Context, s *seeding.Seeder) error {
			return errors.Join(peers(apiv3.BGPFilterSpec{ExportV4: singles4, ExportV6: singles6})(ctx, s), mesh(ctx, s))
		},
	},
	{
		Name:      "node-to-node mesh, the borrower has a stale affinity to the block, confirmed",
		Wiring:    Switched,
		Stale:     []Stale{{Node: Borrower, Of: Borrower, State: "confirmed"}},
		Configure: mesh,
	},
	{
		Name:      "node-to-node mesh, the borrower has a stale affinity to the block, pendingDeletion",
		Wiring:    Switched,
		Stale:     []Stale{{Node: Borrower, Of: Borrower, State: "pendingDeletion"}},
		Configure: mesh,
	},
	{
		Name:      "a third node reflects routes, and has a stale affinity to the block, confirmed",
		Wiring:    Switched,
		Reflector: Third,
		Stale:     []Stale{{Node: Third, Of: Borrower, State: "confirmed"}},
		Configure: hub,
	},
}

// mesh makes each node peer with every other.
func mesh(ctx context.Context, s *seeding.Seeder) error { return s.BGPConfig(ctx, true, nodesAS) }

// hub makes all nodes peer with the reflector or hub.
func hub(ctx context.Context, s *seeding.Seeder) error {
	return errors.Join(s.BGPConfig(ctx, false, nodesAS), s.BGPPeer(ctx, "hub", apiv3.BGPPeerSpec{
		NodeSelector: "all()", PeerSelector: hubLabel + " == 'true'",
	}))
}

// peers makes each node peer with every other through a BGPPeer with a filter.
func peers(filter apiv3.BGPFilterSpec) func(context.Context, *seeding.Seeder) error {
	return func(ctx context.Context, s *seeding.Seeder) error {
		const name = "no-single-addresses"
		return errors.Join(s.BGPConfig(ctx, false, nodesAS), s.BGPFilter(ctx, name, filter),
			s.BGPPeer(ctx, "all", apiv3.BGPPeerSpec{NodeSelector: "all()", PeerSelector: "all()", Filters: []string{name}}))
	}
}
