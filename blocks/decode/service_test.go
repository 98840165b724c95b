package decode

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestServices: cluster IPs are read, and a Service of type LoadBalancer waits if it has no
// address and Calico may serve it.
func TestServices(t *testing.T) {
	meta := blocks.Meta{Name: "web"}
	for spec, want := range map[string]blocks.Service{
		`"spec":{"type":"ClusterIP","clusterIP":"10.96.0.5","clusterIPs":["10.96.0.5","fd00::5"]}`:                                                                          {Meta: meta, ClusterIPs: []netip.Addr{addr("10.96.0.5"), addr("fd00::5")}},
		`"spec":{"clusterIP":"None","clusterIPs":["None"]}`:                                                                                                                 {Meta: meta},
		`"spec":{"type":"LoadBalancer","clusterIPs":[]},"status":{"loadBalancer":{}}`:                                                                                       {Meta: meta, Pending: true},
		`"spec":{"type":"LoadBalancer","loadBalancerClass":"calico"}`:                                                                                                       {Meta: meta, Pending: true},
		`"spec":{"type":"LoadBalancer","loadBalancerClass":"metallb"}`:                                                                                                      {Meta: meta},
		`"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`:                                                                         {Meta: meta},
		`"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example.org","ports":[{"port":80}]}]}}`:                                        {Meta: meta},
		`"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1"}`:                                                                                                       {Meta: meta, Pending: true, Asks: addr("192.0.2.1")},
		`"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1","loadBalancerClass":"calico"}`:                                                                          {Meta: meta, Pending: true},
		`"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}`:                                                                                                    {Meta: meta, Pending: true, Local: true},
		`"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Cluster"}`:                                                                                                  {Meta: meta, Pending: true},
		`"spec":{"type":"LoadBalancer","loadBalancerIP":"here"}`:                                                                                                            {Meta: meta, Pending: true},
		`"metadata":{"name":"web","namespace":"shop","annotations":{"projectcalico.org/loadBalancerIPs":"[]"}},"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1"}`: {Meta: meta, Pending: true},
		`"metadata":{"name":"web","namespace":"shop","annotations":{"projectcalico.org/ipv4pools":"[]"}},"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1"}`:       {Meta: meta, Pending: true},
	} {
		want.Namespace = "shop"
		if !strings.HasPrefix(spec, `"metadata"`) {
			spec = `"metadata":{"name":"web","namespace":"shop"},` + spec
		}
		p := decodeOne(t, services, `{`+spec+`}`)
		noGaps(t, p)
		diff(t, spec, []blocks.Service{want}, all[blocks.Service](p))
	}
	if p := decodeOne(t, services, `{"metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIPs":"x"}}`); len(p.Gaps) != 1 || !NewSnapshot(p).Complete() {
		t.Errorf("an odd Service: %v", p.Gaps)
	}
}
