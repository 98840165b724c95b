package decode

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// services are read as JSON: version is set.
var services = describe(Kind{
	Resource: blocks.Services, Names: []string{"Service"}, Core: true, version: "v1", Namespaced: true,
}, descriptor[blocks.Service]{
	json: (*Decoder).service,
	in:   func(s *blocks.Snapshot) *[]blocks.Service { return &s.Services },
})

// service decodes a Service.
func (d *Decoder) service(r *parse.Reader, s *blocks.Service) bool {
	kind, class, asks, policy, served, annotated := "", "", "", "", false, false
	d.object(r, &s.Meta, metaHooks{noWritten: true, annotation: func(key, _ []byte) {
		annotated = annotated || slices.Contains([]string{"projectcalico.org/loadBalancerIPs", "projectcalico.org/ipv4pools", "projectcalico.org/ipv6pools"}, string(key))
	}}, r.Known(parse.Members{
		"type": &kind, "loadBalancerClass": &class, "loadBalancerIP": &asks, "externalTrafficPolicy": &policy,
		"clusterIPs": func() {
			r.Array(func(int) {
				if a, ok := blocks.ParseAddr(r.String()); ok { // a headless Service has "None"
					s.ClusterIPs = append(s.ClusterIPs, a)
				}
			})
		},
	}), r.Known(parse.Members{"loadBalancer": func() {
		r.Fields(parse.Members{"ingress": func() { r.Array(func(int) { served = true }) }})
	}}))
	s.Namespace = d.inNamespace
	s.Pending = kind == string(corev1.ServiceTypeLoadBalancer) && !served && (class == "" || class == blocks.CalicoLoadBalancer)
	s.Local = policy == string(corev1.ServiceExternalTrafficPolicyLocal)
	if class == "" && !annotated {
		s.Asks, _ = blocks.ParseAddr(asks)
	}
	return d.whole(r, &s.Meta, "")
}
