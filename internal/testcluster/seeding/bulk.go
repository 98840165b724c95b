package seeding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bulk sets the size of a cluster.
type Bulk struct {
	// Nodes is the number of nodes; PodsPerNode is the number of pods on each.
	Nodes, PodsPerNode int
	// Namespaces is the number of namespaces over which the pods are spread; 0 means 10.
	Namespaces int
	// DualStack gives every pod an address of each family.
	DualStack bool
	// Age is the age of all objects except the templates: the first node, its first pod,
	// and their IPAM objects except the block. Heartbeats are current.
	Age time.Duration
	// Prefix begins the names of nodes and namespaces; "" means bulk. Each call needs a
	// different prefix.
	Prefix string
}

// Bulk creates many nodes with many pods, which get addresses of the existing pools. The
// result equals that of Node and Pod at some hundred times their speed. Calico's IPAM
// client makes the allocations on a copy of the state in memory; then its writes are
// stored directly in etcd. No one else may write at the same time.
//
// Node and Pod create the first node and its first pod, which serve as templates for the
// metadata of the others.
func (s *Seeder) Bulk(ctx context.Context, b Bulk) error {
	b.Namespaces = cmp.Or(b.Namespaces, 10)
	b.Prefix = cmp.Or(b.Prefix, "bulk")
	if b.Nodes < 1 || b.PodsPerNode < 1 {
		return errors.New("seeding in bulk: at least one node and one pod are needed")
	}
	if err := s.bulk(ctx, b); err != nil {
		return fmt.Errorf("seeding %d nodes with %d pods each: %w", b.Nodes, b.PodsPerNode, err)
	}
	return nil
}

func (s *Seeder) bulk(ctx context.Context, b Bulk) error {
	namespaces := make([]*corev1.Namespace, b.Namespaces)
	for i := range namespaces {
		name := fmt.Sprintf("%s-%03d", b.Prefix, i)
		if err := s.Namespace(ctx, name, nil, nil); err != nil {
			return err
		}
		var err error
		namespaces[i], err = s.Cluster.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
	}
	if err := s.Node(ctx, b.NodeAt(0)); err != nil {
		return err
	}
	if _, err := s.Pod(ctx, b.PodAt(0, 0)); err != nil {
		return err
	}
	store, client, err := s.inMemory(ctx)
	if err != nil {
		return err
	}
	w, err := s.newBulkWriter(ctx, b)
	if err != nil {
		return err
	}
	for n := range b.Nodes {
		node := nodeObject(b.NodeAt(n), s.nextNode(), w.version)
		if n > 0 {
			if err := w.node(node); err != nil {
				return err
			}
		}
		kvp, err := resources.K8sNodeToCalico(node, false)
		if err != nil {
			return err
		}
		if err := store.load([]*model.KVPair{kvp}); err != nil {
			return err
		}
		for p := range b.PodsPerNode {
			if n == 0 && p == 0 {
				continue
			}
			pod := b.PodAt(n, p)
			addrs, err := allocateInMemory(ctx, client, pod, namespaces[b.namespace(n, p)])
			if err != nil {
				return err
			}
			if err := w.pod(pod, nodeAddress(node), addrs); err != nil {
				return err
			}
		}
	}
	return w.finish(store)
}

// NodeAt returns the n-th node, from 0.
func (b Bulk) NodeAt(n int) Node { return Node{Name: fmt.Sprintf("%s-%05d", b.Prefix, n)} }

func (b Bulk) namespace(n, p int) int { return (n*b.PodsPerNode + p) % b.Namespaces }

// PodAt returns the p-th pod of the n-th node, from 0. Namespaces and Prefix must be set.
func (b Bulk) PodAt(n, p int) Pod {
	name := b.NodeAt(n).Name
	return Pod{
		Namespace: fmt.Sprintf("%s-%03d", b.Prefix, b.namespace(n, p)),
		Name:      fmt.Sprintf("app-7f9d8c6b54-%s-%03d", name, p),
		Node:      name,
		Labels:    map[string]string{"app": "app", "pod-template-hash": "7f9d8c6b54"},
		DualStack: b.DualStack,
	}
}

// inMemory returns a copy of the cluster's IPAM state and a Calico IPAM client that works
// on it.
func (s *Seeder) inMemory(ctx context.Context) (*memoryStore, ipam.Interface, error) {
	pools, err := s.Calico.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing pools: %w", err)
	}
	reservations, err := s.Calico.IPReservations().List(ctx, options.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing reservations: %w", err)
	}
	backend, err := s.backend()
	if err != nil {
		return nil, nil, err
	}
	store := newMemoryStore()
	for _, list := range []model.ListInterface{
		model.BlockListOptions{}, model.BlockAffinityListOptions{}, model.IPAMHandleListOptions{},
	} {
		kvps, err := backend.List(ctx, list, "")
		if err != nil {
			return nil, nil, fmt.Errorf("listing IPAM objects: %w", err)
		}
		if err := store.load(kvps.KVPairs); err != nil {
			return nil, nil, err
		}
	}
	config, err := backend.Get(ctx, model.IPAMConfigKey{}, "")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the IPAM configuration: %w", err)
	}
	if err := store.load([]*model.KVPair{config}); err != nil {
		return nil, nil, err
	}
	fixed := fixedPools{pools: pools.Items, reservations: reservations}
	return store, ipam.NewIPAMClient(store, fixed, fixed), nil
}

func allocateInMemory(ctx context.Context, client ipam.Interface, p Pod, namespace *corev1.Namespace) ([]netip.Addr, error) {
	args, err := podArgs(p, namespace)
	if err != nil {
		return nil, err
	}
	return autoAssign(ctx, client, args)
}
