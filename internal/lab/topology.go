package lab

import (
	"context"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Topology says how nodes learn each other's routes.
type Topology struct {
	// Name is what the table of measurements calls it.
	Name string
	// Wiring says what lies between the nodes.
	Wiring Wiring
	// AS are the AS numbers of nodes that have one of their own.
	AS map[string]uint32
	// Reflector is the node that reflects routes; empty for none.
	Reflector string
	// Hub is the node that alone all others have a session with, and that is no
	// reflector; empty for none.
	Hub string
	// Down begins the names of the BGP sessions in confd's configuration that do not
	// come up: "Mesh_" are those of the mesh, "Node_" those with other nodes by a
	// BGPPeer. Empty: all come up.
	Down string
	// LostBeyond says where packets are lost though the owner forwards them.
	LostBeyond string
	// Stale are affinities that do not own their blocks.
	Stale []Stale
	// Reversed gives the nodes their addresses in reverse order, and with them their
	// BGP router IDs, of which the lower wins among equal routes.
	Reversed bool
	// DisableBGPExport and VXLAN are the settings of the pools.
	DisableBGPExport, VXLAN bool
	// Configure writes the rest of the BGP configuration.
	Configure func(context.Context, *seeding.Seeder) error
	// Beyond says what decides here and is not in the datastore, so that a prediction
	// from the datastore is wrong. Empty: nothing.
	Beyond string
	// Router is what the router does. Nil: it speaks no BGP.
	Router *Router
}

// Stale is an affinity of a node to the blocks, of both families, that another node
// owns.
type Stale struct {
	Node string
	// Of is the node whose pod has its addresses in the blocks.
	Of string
	// State is pending, confirmed, pendingDeletion or empty.
	State string
	// Unlabelled leaves the labels out that Calico v3.31 looks for a node's affinities
	// by, as older releases do.
	Unlabelled bool
}

// Interfaces are the addresses of a node on its link, IPv4 and then IPv6.
func (t Topology) Interfaces(node string) [2]Interface {
	i := slices.Index(NodeNames, node) + 1
	if t.Reversed {
		i = len(NodeNames) + 1 - i
	}
	return t.Wiring.interfaces(i)
}

// Plan is a topology with what the datastore holds for it: all that is needed to
// build the network.
type Plan struct {
	Topology Topology
	// BIRD is each node's BIRD configuration as Calico's confd renders it.
	BIRD map[string]Config
	// Snapshot is what calico-audit reads from the datastore.
	Snapshot *blocks.Snapshot
	// Pods are the addresses of each node's first pod, IPv4 and then IPv6; none if the
	// pod is gone.
	Pods map[string][]netip.Addr
}

// Plan writes a topology into the datastore and reads what follows from it.
func (d *Datastore) Plan(ctx context.Context, t Topology) (*Plan, error) {
	if err := d.Configure(ctx, t); err != nil {
		return nil, err
	}
	return d.Read(ctx, t)
}

// Read makes a plan of the datastore as it is.
func (d *Datastore) Read(ctx context.Context, t Topology) (*Plan, error) {
	p := &Plan{Topology: t, Pods: map[string][]netip.Addr{}}
	var err error
	if p.BIRD, err = d.BIRD(ctx); err != nil {
		return nil, err
	}
	for _, node := range NodeNames {
		p.Pods[node], err = d.PodAddresses(ctx, seeding.SmallStoryPod(node, 0))
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	p.Snapshot, err = d.Snapshot(ctx)
	return p, err
}
