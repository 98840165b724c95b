package seeding

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// StoryInEtcd is [Story] for a Calico that keeps its objects in etcd. It is as old as it is:
// etcd records no ages.
func StoryInEtcd(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "playing the story in etcd")
	s, err := NewEtcd(c)
	if err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.story(ctx)
}

// etcdNode creates Calico's node for a Kubernetes node, as calico/node does at its start,
// and removes Calico's annotations from the object.
func (s *Seeder) etcdNode(ctx context.Context, n Node, object *corev1.Node) error {
	node := libapiv3.NewNode()
	node.Name, node.Labels = n.Name, object.Labels
	node.Spec.BGP = &libapiv3.NodeBGPSpec{
		IPv4Address: object.Annotations["projectcalico.org/IPv4Address"], IPv6Address: object.Annotations["projectcalico.org/IPv6Address"],
		RouteReflectorClusterID: n.RouteReflectorID,
	}
	node.Spec.OrchRefs = []libapiv3.OrchRef{{NodeName: n.Name, Orchestrator: "k8s"}}
	object.Annotations = n.Annotations
	if _, err := s.Calico.Nodes().Create(ctx, node, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating Calico's node %s: %w", n.Name, err)
	}
	return nil
}

// etcdEndpoint creates a pod's WorkloadEndpoint, as Calico's CNI plugin does.
func (s *Seeder) etcdEndpoint(ctx context.Context, p Pod, addrs []netip.Addr) error {
	name, err := endpointName(p)
	if err != nil {
		return err
	}
	e := libapiv3.NewWorkloadEndpoint()
	e.Name, e.Namespace = name, p.Namespace
	e.Spec = libapiv3.WorkloadEndpointSpec{
		Orchestrator: "k8s", Node: p.Node, Pod: p.Name, Endpoint: "eth0", ContainerID: p.sandboxID(), InterfaceName: "cali" + p.sandboxID()[:11],
	}
	for _, a := range addrs {
		e.Spec.IPNetworks = append(e.Spec.IPNetworks, netip.PrefixFrom(a, a.BitLen()).String())
	}
	if _, err := s.Calico.WorkloadEndpoints().Create(ctx, e, options.SetOptions{}); err != nil {
		return fmt.Errorf("creating the endpoint of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (s *Seeder) deleteEndpoint(ctx context.Context, p Pod) error {
	name, err := endpointName(p)
	if err == nil {
		_, err = s.Calico.WorkloadEndpoints().Delete(ctx, p.Namespace, name, options.DeleteOptions{})
	}
	if err != nil {
		return fmt.Errorf("deleting the endpoint of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func endpointName(p Pod) (string, error) {
	ids := names.WorkloadEndpointIdentifiers{Node: p.Node, Orchestrator: "k8s", Pod: p.Name, Endpoint: "eth0"}
	return ids.CalculateWorkloadEndpointName(false)
}

// CopyToEtcd copies Calico's IPAM objects and pools of the API group crd.projectcalico.org/v1 to
// etcd, by Calico's own clients of both datastores, and creates WorkloadEndpoints for pods. Objects marked deleted are left out: Calico
// marks none in etcd.
func CopyToEtcd(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "copying to etcd")
	from, err := New(c)
	if err != nil {
		return err
	}
	to, err := NewEtcd(c)
	if err != nil {
		return err
	}
	read, err := from.backend()
	if err != nil {
		return err
	}
	write, err := to.backend()
	if err != nil {
		return err
	}
	for _, kind := range []model.ListInterface{
		model.ResourceListOptions{Kind: apiv3.KindIPPool}, model.ResourceListOptions{Kind: apiv3.KindClusterInformation},
		model.BlockListOptions{}, model.BlockAffinityListOptions{AffinityType: "host"}, model.IPAMHandleListOptions{},
	} {
		all, err := read.List(ctx, kind, "")
		if err != nil {
			return err
		}
		for _, kvp := range all.KVPairs {
			kvp.Revision = ""
			if _, err := write.Create(ctx, kvp); err != nil {
				return err
			}
		}
	}
	pods, err := c.Kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := to.endpointOf(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	settings, err := from.Calico.IPAM().GetIPAMConfig(ctx)
	if err != nil {
		return err
	}
	return to.Calico.IPAM().SetIPAMConfig(ctx, *settings)
}

// endpointOf creates the WorkloadEndpoint of a pod with Calico's annotations.
func (s *Seeder) endpointOf(ctx context.Context, pod *corev1.Pod) error {
	nets := pod.Annotations[conversion.AnnotationPodIPs]
	if nets == "" {
		return nil
	}
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, sandbox: pod.Annotations[conversion.AnnotationContainerID]}
	var addrs []netip.Addr
	for text := range strings.SplitSeq(nets, ",") {
		net, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		addrs = append(addrs, net.Addr())
	}
	return s.etcdEndpoint(ctx, p, addrs)
}
