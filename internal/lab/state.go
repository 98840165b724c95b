package lab

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Datastore is the API server of a cluster with the small story (see seeding.SmallStory).
// Its BGP configuration changes with the topology.
type Datastore struct {
	Cluster *testcluster.Cluster
	Seeder  *seeding.Seeder
	// stale holds the affinities that the current topology added.
	stale []claim
}

type claim struct {
	node  string
	block netip.Prefix
}

// NewDatastore creates the small story in a cluster.
func NewDatastore(ctx context.Context, c *testcluster.Cluster) (*Datastore, error) {
	if err := seeding.SmallStory(ctx, c, Owner, Borrower, Third); err != nil {
		return nil, err
	}
	s, err := seeding.New(c)
	return &Datastore{Cluster: c, Seeder: s}, err
}

// Configure writes the settings of a topology and removes those of the previous topology.
func (d *Datastore) Configure(ctx context.Context, t Topology) error {
	for _, plural := range []string{"bgppeers", "bgpfilters"} {
		resource := testcluster.CRDv1.Resource(plural)
		objects, err := d.Cluster.List(ctx, resource)
		if err != nil {
			return err
		}
		for i := range objects {
			if err := d.Cluster.Delete(ctx, resource, "", objects[i].GetName()); err != nil {
				return err
			}
		}
	}
	for _, pool := range []string{seeding.SmallStoryPoolIPv4, seeding.SmallStoryPoolIPv6} {
		err := d.Seeder.EditPool(ctx, pool, func(spec map[string]any) {
			spec["disableBGPExport"], spec["vxlanMode"] = t.DisableBGPExport, "Never"
			if t.VXLAN {
				spec["vxlanMode"] = "Always"
			}
		})
		if err != nil {
			return err
		}
	}
	for _, node := range NodeNames {
		if err := d.configureNode(ctx, node, t); err != nil {
			return err
		}
	}
	if err := d.configureStale(ctx, t.Stale); err != nil {
		return err
	}
	return t.Configure(ctx, d.Seeder)
}

// configureStale replaces the previous topology's stale affinities with this one's.
func (d *Datastore) configureStale(ctx context.Context, stale []Stale) error {
	for _, a := range d.stale {
		if err := d.Seeder.DeleteAffinity(ctx, a.node, a.block); err != nil {
			return err
		}
	}
	d.stale = nil
	state, err := d.Cluster.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	for _, s := range stale {
		addrs, err := d.PodAddresses(ctx, seeding.SmallStoryPod(s.Of, 0))
		if err != nil {
			return err
		}
		for _, addr := range addrs {
			for _, block := range state.Blocks[Owner] {
				if !block.Contains(addr) {
					continue
				}
				if err := d.Seeder.Affinity(ctx, s.Node, block, s.State); err != nil {
					return err
				}
				d.stale = append(d.stale, claim{s.Node, block})
				if !s.Unlabelled {
					continue
				}
				if err := d.unlabel(ctx, s.Node, block); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unlabel removes the labels of an affinity.
func (d *Datastore) unlabel(ctx context.Context, node string, block netip.Prefix) error {
	resource := testcluster.CRDv1.Resource("blockaffinities")
	affinities, err := d.Cluster.List(ctx, resource)
	if err != nil {
		return err
	}
	for i := range affinities {
		spec, _ := affinities[i].Object["spec"].(map[string]any)
		if spec["node"] != node || spec["cidr"] != block.String() {
			continue
		}
		err := d.Cluster.Edit(ctx, resource, "", affinities[i].GetName(), func(object map[string]any) {
			delete(object["metadata"].(map[string]any), "labels")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// configureNode writes a node's addresses, as calico/node detects them, and its BGP
// settings.
func (d *Datastore) configureNode(ctx context.Context, node string, t Topology) error {
	interfaces := t.Interfaces(node)
	err := d.Cluster.Edit(ctx, testcluster.Core[1], "", node, func(object map[string]any) {
		metadata := object["metadata"].(map[string]any)
		annotations := metadata["annotations"].(map[string]any)
		annotations["projectcalico.org/IPv4Address"] = interfaces[0].Addr.String()
		annotations["projectcalico.org/IPv6Address"] = interfaces[1].Addr.String()
	})
	if err != nil {
		return err
	}
	reflector := ""
	if t.Reflector == node {
		reflector = reflectorID
	}
	if err := d.Seeder.NodeBGP(ctx, node, t.AS[node], reflector); err != nil {
		return err
	}
	return d.Seeder.LabelNode(ctx, node, map[string]string{
		hubLabel: fmt.Sprint(t.Reflector == node || t.Hub == node),
	})
}

// hubLabel is the label, "true" or "false", of the node with which all others peer.
const hubLabel = "hub"

// reflectorID is the BGP cluster ID of route reflectors.
const reflectorID = "244.0.0.1"

// PodAddresses returns the addresses in a pod's status, IPv4 first.
func (d *Datastore) PodAddresses(ctx context.Context, pod string) ([]netip.Addr, error) {
	object, err := d.Cluster.Kube.CoreV1().Pods(seeding.SmallStoryNamespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, ip := range object.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// Snapshot reads the cluster as calico-audit does.
func (d *Datastore) Snapshot(ctx context.Context) (*blocks.Snapshot, error) {
	k, err := cluster.NewKubernetes(d.Cluster.Config, cluster.KubernetesOptions{})
	if err != nil {
		return nil, err
	}
	return k.Read(ctx)
}

// BIRD renders the configuration of each node's BIRDs.
func (d *Datastore) BIRD(ctx context.Context) (map[string]Config, error) {
	configs := map[string]Config{}
	for _, node := range NodeNames {
		files, err := d.Cluster.Confd(ctx, node)
		if err != nil {
			return nil, err
		}
		if configs[node], err = newConfig(files); err != nil {
			return nil, fmt.Errorf("node %s: %w", node, err)
		}
	}
	return configs, nil
}
