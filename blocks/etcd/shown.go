package etcd

import (
	"cmp"
	"encoding/json"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// takeNode takes a node. The annotations are those of libcalico-go
// lib/backend/k8s/resources/node.go (mergeCalicoNodeIntoK8sNode).
func takeNode(r *Reading, s store, kv *mvccpb.KeyValue) {
	o, reason := s.parse(kv)
	var in libapiv3.Node
	if reason == "" {
		if err := json.Unmarshal(kv.Value, &in); err != nil {
			reason = "it cannot be parsed: " + err.Error()
		}
	}
	if reason != "" {
		r.gap(s, kv, o.Metadata.Name, reason)
		return
	}
	n := &node{metadata: o.Metadata, key: string(kv.Key), annotations: map[string]string{}, podCIDRs: in.Status.PodCIDRs}
	annotate := func(name, value string) {
		if value != "" {
			n.annotations["projectcalico.org/"+name] = value
		}
	}
	if b := in.Spec.BGP; b != nil {
		annotate("IPv4Address", b.IPv4Address)
		annotate("IPv6Address", b.IPv6Address)
		annotate("IPv4IPIPTunnelAddr", b.IPv4IPIPTunnelAddr)
		annotate("RouteReflectorClusterID", b.RouteReflectorClusterID)
		if b.ASNumber != nil {
			annotate("ASNumber", b.ASNumber.String())
		}
	}
	annotate("IPv4VXLANTunnelAddr", in.Spec.IPv4VXLANTunnelAddr)
	annotate("IPv6VXLANTunnelAddr", in.Spec.IPv6VXLANTunnelAddr)
	if w := in.Spec.Wireguard; w != nil {
		annotate("IPv4WireguardInterfaceAddr", w.InterfaceIPv4Address)
		annotate("IPv6WireguardInterfaceAddr", w.InterfaceIPv6Address)
	}
	annotate("WireguardPublicKey", in.Status.WireguardPublicKey)
	annotate("WireguardPublicKeyV6", in.Status.WireguardPublicKeyV6)
	for _, a := range in.Spec.Addresses {
		if a.Type == libapiv3.InternalIP {
			n.addresses = append(n.addresses, address{a.Type, a.Address})
		}
	}
	for _, ref := range in.Spec.OrchRefs {
		if ref.Orchestrator == apiv3.OrchestratorKubernetes {
			n.kubernetes, n.named = ref.NodeName, append(n.named, ref.NodeName)
			r.byKubernetes[ref.NodeName] = n.Name
		}
	}
	r.nodes[n.Name] = n
}

// takeWorkloadEndpoint takes a WorkloadEndpoint (libapiv3.WorkloadEndpoint).
func takeWorkloadEndpoint(r *Reading, s store, kv *mvccpb.KeyValue) {
	var spec struct {
		Orchestrator, Workload, Node, ContainerID, Pod string
		IPNetworks                                     []string
	}
	e, reason := s.endpoint(kv, &spec)
	if reason != "" {
		r.endpointsUnread = true
		r.gap(s, kv, e.Name, reason)
		return
	}
	e.node, e.container, e.ips = spec.Node, spec.ContainerID, spec.IPNetworks
	for i, ip := range e.ips {
		e.ips[i], _, _ = strings.Cut(ip, "/")
	}
	e.Name = cmp.Or(spec.Pod, spec.Workload, e.Name)
	if spec.Orchestrator == apiv3.OrchestratorKubernetes {
		r.ofPods.add(e)
		return
	}
	r.others.add(e)
}

// takeHostEndpoint takes a HostEndpoint (apiv3.HostEndpoint).
func takeHostEndpoint(r *Reading, s store, kv *mvccpb.KeyValue) {
	var spec struct {
		Node        string
		ExpectedIPs []string
	}
	e, reason := s.endpoint(kv, &spec)
	if reason != "" {
		r.gap(s, kv, e.Name, reason)
		return
	}
	if e.node, e.ips, e.host = spec.Node, spec.ExpectedIPs, true; len(e.ips) > 0 {
		e.Namespace = hostEndpoints
		r.others.add(e)
	}
}

// endpoint parses an endpoint and its spec.
func (s store) endpoint(kv *mvccpb.KeyValue, spec any) (e *endpoint, reason string) {
	o, reason := s.parse(kv)
	e = &endpoint{metadata: o.Metadata, key: string(kv.Key)}
	e.Labels, e.Annotations = nil, nil
	if reason == "" && o.Spec != nil {
		if err := json.Unmarshal(o.Spec, spec); err != nil {
			reason = "its spec cannot be parsed: " + err.Error()
		}
	}
	return e, reason
}
