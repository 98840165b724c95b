package lab

import (
	"context"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Topology describes how nodes learn each other's routes.
type Topology struct {
	// Name is the topology's name in the table of measurements.
	Name string
	// Wiring is how the nodes are connected.
	Wiring Wiring
	// AS holds the AS numbers of nodes with their own.
	AS map[string]uint32
	// Reflector is the node that reflects routes; empty without one.
	Reflector string
	// Hub is the only node with which the others have a session, but not a reflector;
	// empty without one.
	Hub string
	// Down is the prefix of the sessions in confd's configuration that stay down: "Mesh_"
	// for sessions of the mesh, "Node_" for sessions of a BGPPeer between nodes. If
	// empty, all sessions are established.
	Down string
	// LostBeyond names the place where packets are lost after the owner forwarded them.
	LostBeyond string
	// Stale lists affinities whose node does not own the block.
	Stale []Stale
	// Reversed gives the nodes their addresses in reverse order, and thus their BGP
	// router IDs. Of equal routes, the one with the lower ID wins.
	Reversed bool
	// DisableBGPExport and VXLAN are settings of the pools.
	DisableBGPExport, VXLAN bool
	// Configure writes the rest of the BGP configuration.
	Configure func(context.Context, *seeding.Seeder) error
	// Beyond names the cause outside the datastore that makes a prediction from the
	// datastore wrong. If empty, there is none.
	Beyond string
	// Router configures the router. If nil, it does not speak BGP.
	Router *Router
}

// Stale is an affinity of a node to the blocks of both families that another node owns.
type Stale struct {
	Node string
	// Of is the node whose pod has addresses in the blocks.
	Of string
	// State is pending, confirmed, pendingDeletion or empty.
	State string
	// Unlabelled omits the labels, as releases before Calico v3.31 do. v3.31 finds a
	// node's affinities by label.
	Unlabelled bool
}

// Interfaces returns the addresses of a node on its link, IPv4 first.
func (t Topology) Interfaces(node string) [2]Interface {
	i := slices.Index(NodeNames, node) + 1
	if t.Reversed {
		i = len(NodeNames) + 1 - i
	}
	return t.Wiring.interfaces(i)
}

// Plan is a topology together with its state in the datastore. It suffices to build the
// network.
type Plan struct {
	Topology Topology
	// BIRD is each node's BIRD configuration as Calico's confd renders it.
	BIRD map[string]Config
	// Snapshot is what calico-audit reads from the datastore.
	Snapshot *blocks.Snapshot
	// Pods holds the addresses of each node's first pod, IPv4 first, or nothing if the
	// pod does not exist.
	Pods map[string][]netip.Addr
}

// Plan writes a topology to the datastore and reads the resulting state.
func (d *Datastore) Plan(ctx context.Context, t Topology) (*Plan, error) {
	if err := d.Configure(ctx, t); err != nil {
		return nil, err
	}
	return d.Read(ctx, t)
}

// Read returns a plan of the current datastore.
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
