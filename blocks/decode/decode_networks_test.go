package decode

import (
	"encoding/json"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestNetworkStatus: every address of every interface is decoded, even if other entries cannot be
// parsed. Those are reported, but the reading is complete.
func TestNetworkStatus(t *testing.T) {
	const field = "metadata.annotations[k8s.v1.cni.cncf.io/network-status]"
	for _, c := range []struct {
		status string
		ips    []netip.Addr
		reason string
	}{
		{"", nil, ""}, {" ", nil, ""}, {"[]", nil, ""}, {"null", nil, ""}, {`[{}]`, nil, ""}, {`[{"name": "a", "ips": null}]`, nil, ""},
		{`[{"name": "k8s-pod-network", "ips": ["10.0.0.1"], "default": true, "dns": {}, "mtu": 1500, "gateway": ["10.0.0.254"]},
			{"name": "a/b", "interface": "net1", "ips": ["10.9.0.1", "fd09::1"], "mac": "02:00:00:00:00:01", "device-info": {"ips": ["10.8.0.1"]}}]`,
			[]netip.Addr{addr("10.0.0.1"), addr("10.9.0.1"), addr("fd09::1")}, ""},
		{`[{"ips": ["10.9.0.1", "10.9.0.1"]}, {"ips": ["10.9.0.1/24"]}]`, []netip.Addr{addr("10.9.0.1")}, ""},
		{`[{"IPs": ["10.9.0.1"]}]`, []netip.Addr{addr("10.9.0.1")}, ""},
		{`net1`, nil, "is not a JSON list of networks: invalid character 'e' in literal null (expecting 'u')"},
		{`[{"ips": ["10.9.0.1"]}, {"ips": ["10`, []netip.Addr{addr("10.9.0.1")}, "is not a JSON list of networks: unexpected end of JSON"},
		{`[{"ips": ["10.9.0.1"]}]]`, []netip.Addr{addr("10.9.0.1")}, "is not a JSON list of networks: invalid character ']' after top-level value"},
		{`{"ips": ["10.9.0.1"]}`, nil, "is an object, not a list"},
		{`["10.9.0.1"]`, nil, "[0] is a string, not an object"},
		{`[{"ips": "10.9.0.1"}]`, nil, "[0].ips is a string, not a list"},
		{`[{"ips": [1, "10.9.0.1"]}]`, []netip.Addr{addr("10.9.0.1")}, "[0].ips[0] is a number, not a string"},
		{`[{"ips": ["10.9.0.1"]}, {"ips": ["x", "10.9.0.2"]}]`, []netip.Addr{addr("10.9.0.1"), addr("10.9.0.2")}, `[1].ips[0] "x" is not an address`},
		{`[{"ips": [""]}]`, nil, "[0].ips[0] is empty, not an address"},
	} {
		t.Run(c.status, func(t *testing.T) {
			p := bothWays(t, KindOf(blocks.Pods), &corev1.PodList{
				TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(),
				Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns",
					Annotations: map[string]string{annotationNetworks: c.status}}}},
			})
			diff(t, "addresses", c.ips, all[blocks.Workload](p)[0].Extras().NetworkIPs)
			var want []blocks.Gap
			unreadable := ""
			if c.reason != "" {
				unreadable = field
				want = []blocks.Gap{{Resource: blocks.Pods, Name: "ns/p", Field: field, Reason: c.reason, Tolerated: true}}
			}
			diff(t, "gaps", want, p.Gaps)
			diff(t, "unreadable", unreadable, all[blocks.Workload](p)[0].Extras().Unreadable)
			if s := NewSnapshot(p); !s.Complete() || len(s.Unreadable(blocks.Pods)) > 0 {
				t.Errorf("incomplete: %v", s.Gaps)
			}
		})
	}
}

// TestUnreadablePods: an unparseable field that may name an address is tolerated. Any other fault
// is a gap that counts, even if the field may have named addresses, because no API server would
// send it.
func TestUnreadablePods(t *testing.T) {
	for text, c := range map[string]struct {
		unreadable string
		held       bool
	}{
		`"status": {"podIP": 5}`:              {"status.podIP", true},
		`"status": {"podIPs": {}}`:            {"status.podIPs", true},
		`"status": {"podIPs": [7]}`:           {"status.podIPs[0]", true},
		`"status": {"podIPs": [{"ip": "x"}]}`: {"status.podIPs[0].ip", true},
		`"status": []`:                        {"status", false},
		`"status": {"phase": 5}`:              {"", false},
		`"spec": {"hostNetwork": "yes"}`:      {"", false},
	} {
		p := decodeOne(t, pods, `{"metadata": {"name": "p", "namespace": "ns"}, `+text+`}`)
		if g := oneGap(t, p); g.Tolerated != c.held || all[blocks.Workload](p)[0].Extras().Unreadable != c.unreadable || NewSnapshot(p).Complete() != c.held {
			t.Errorf("%s: unreadable %q, gap %+v", text, all[blocks.Workload](p)[0].Extras().Unreadable, g)
		}
	}
	for key, c := range map[string]struct {
		unreadable, held bool
	}{
		annotationPodIP: {true, true}, annotationPodIPs: {true, true}, annotationNetworks: {true, true}, annotationNetworksOld: {true, true},
		annotationPoolsV4: {false, true}, annotationPoolsV6: {false, true},
	} {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "p", "annotations": map[string]string{key: "x,"}}})
		p := decodeOne(t, pods, string(text))
		if g := oneGap(t, p); g.Tolerated != c.held || (all[blocks.Workload](p)[0].Extras().Unreadable == g.Field) != c.unreadable {
			t.Errorf("%s: unreadable %q, gap %+v", key, all[blocks.Workload](p)[0].Extras().Unreadable, g)
		}
	}
	p := decodeOne(t, pods, `{"metadata": {"name": "p", "annotations": []}}`)
	if g := oneGap(t, p); g.Tolerated || all[blocks.Workload](p)[0].Extras().Unreadable != "metadata.annotations" {
		t.Errorf("unreadable %q, gap %+v", all[blocks.Workload](p)[0].Extras().Unreadable, g)
	}
	if p := decodeOne(t, pods, `{"metadata": {"name": ""}}`); oneGap(t, p).Tolerated || len(all[blocks.Workload](p)) > 0 {
		t.Errorf("a pod without a name is held: %v", p.Gaps)
	}
}
