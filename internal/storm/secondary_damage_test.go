package storm

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// newSecondaryDamage returns a cluster with a secondary network and damage for every kind
// of its repairs. Addresses 5 and 6 are recorded for pods that no longer exist; 5 has a
// reservation. Address 7 is reserved for a pod that uses it, but not recorded. Address 8
// is only reserved. Address 9 is intact. All objects are an hour old.
func newSecondaryDamage(t *testing.T) *damaged {
	t.Helper()
	c, s := secondaryCluster(t)
	ctx := t.Context()
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.90.0.0/24", BlockSize: 29}))
	x := &damaged{Cluster: c, group: testcluster.CRDv1, fixture: &DamageFixture{}, secondary: map[netip.Addr]string{secondaryAddr(7): "default/half", secondaryAddr(9): "default/whole"}}
	for a, pod := range x.secondary {
		name := strings.TrimPrefix(pod, "default/")
		status := fmt.Sprintf(`[{"name":"default/fast","interface":%q,"ips":[%q]}]`, secondaryInterface, a)
		_, err := s.Pod(ctx, seeding.Pod{Namespace: "default", Name: name, Node: "n1", Annotations: map[string]string{"k8s.v1.cni.cncf.io/network-status": status}})
		must(t, err)
	}
	entry := func(pod, id string) map[string]any {
		return map[string]any{"id": id, "podref": "default/" + pod, "ifname": secondaryInterface}
	}
	must(t, c.Edit(ctx, secondaryPools, secondaryNamespace, secondaryPool, func(o map[string]any) {
		o["spec"].(map[string]any)["allocations"] = map[string]any{"5": entry("gone", "c5"), "6": entry("gone-too", "c6"), "9": entry("whole", seeding.ContainerID("default", "whole"))}
	}))
	for offset, pod := range map[int]string{5: "gone", 7: "half", 8: "left", 9: "whole"} {
		create(t, c, secondaryReservations, secondaryNamespace, secondaryAddr(offset).String(), map[string]any{"podref": "default/" + pod, "ifname": secondaryInterface})
	}
	must(t, c.Backdate(ctx, time.Hour))
	must(t, c.Heartbeat(ctx))
	x.begin(t, func() map[string][]inUse {
		out := map[string][]inUse{}
		for a := range x.secondary {
			out["n1"] = append(out["n1"], inUse{addr: a})
		}
		return out
	})
	return x
}

// secondaryRecords returns the pool entries and reservations of a secondary network, by
// their names in messages.
func (x *damaged) secondaryRecords(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	if x.secondary == nil {
		return out
	}
	text := func(v any) string {
		raw, err := json.Marshal(v)
		must(t, err)
		return string(raw)
	}
	pool, err := x.Get(t.Context(), secondaryPools, secondaryNamespace, secondaryPool)
	must(t, err)
	for key, entry := range pool.Object["spec"].(map[string]any)["allocations"].(map[string]any) {
		out["10.9.0."+key] = text(entry)
	}
	reservations, err := x.List(t.Context(), secondaryReservations)
	must(t, err)
	for _, r := range reservations {
		out[secondaryNamespace+"/"+r.GetName()] = text(r.Object["spec"])
	}
	return out
}

// secondaryHarm lists damage to the addresses in use on a secondary network: those
// without their reservation or recorded for another pod, and recorded addresses that lost
// their reservation.
func (x *damaged) secondaryHarm(t *testing.T) (wrong []string) {
	t.Helper()
	now := x.secondaryRecords(t)
	owner := func(name string) string {
		var of struct{ PodRef string }
		if now[name] != "" {
			must(t, json.Unmarshal([]byte(now[name]), &of))
		}
		return of.PodRef
	}
	for a, pod := range x.secondary {
		if is := owner(secondaryNamespace + "/" + a.String()); is != pod {
			wrong = append(wrong, fmt.Sprintf("%s is in use by %s, and reserved for %q", a, pod, is))
		}
		if is := owner(a.String()); is != pod && (is != "" || a == secondaryAddr(9)) {
			wrong = append(wrong, fmt.Sprintf("%s is in use by %s, and recorded for %q", a, pod, is))
		}
	}
	if five := secondaryAddr(5).String(); now[five] != "" && now[secondaryNamespace+"/"+five] == "" {
		wrong = append(wrong, five+" is recorded, and its reservation is gone")
	}
	return wrong
}

// halfReleased returns the reservations whose pool entry existed before but no longer
// does.
func halfReleased(before, now map[string]string) (out []string) {
	for name := range now {
		if a := strings.TrimPrefix(name, secondaryNamespace+"/"); a != name && before[a] != "" && now[a] == "" {
			out = append(out, name)
		}
	}
	return out
}

// notBack returns the addresses of a secondary network with a record that changed or
// disappeared.
func notBack(before, after map[string]string) (out []string) {
	for name, was := range before {
		if after[name] != was {
			out = append(out, strings.TrimPrefix(name, secondaryNamespace+"/"))
		}
	}
	return out
}
