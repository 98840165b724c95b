package cluster

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

var whereaboutsPool = testcluster.Whereabouts.Resource("ippools")

// storage creates a network of Whereabouts with an address in use, recorded in an object of
// each kind.
func storage(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	create := func(r testcluster.Resource, namespace, name string, more map[string]any) {
		more["metadata"] = map[string]any{"namespace": namespace, "name": name}
		must(t, c.Create(t.Context(), r, more))
	}
	create(whereaboutsPool, "kube-system", "10.9.0.0-24", map[string]any{"spec": map[string]any{
		"range": "10.9.0.0/24", "allocations": map[string]any{"5": map[string]any{"id": "c0", "podref": "shop/db-0", "ifname": "net1"}},
	}})
	create(testcluster.Whereabouts.Resource("overlappingrangeipreservations"), "kube-system", "10.9.0.5", map[string]any{"spec": map[string]any{"podref": "shop/db-0"}})
	create(testcluster.Whereabouts.Resource("nodeslicepools"), "kube-system", "fast", map[string]any{
		"spec": map[string]any{"range": "10.8.0.0/16", "sliceSize": "/28"}, "status": map[string]any{"allocations": []any{map[string]any{"nodeName": "n1", "sliceRange": "10.8.0.0/28"}}},
	})
}

func attach(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	must(t, c.Create(t.Context(), testcluster.Attachments.Resource("network-attachment-definitions"), map[string]any{
		"metadata": map[string]any{"namespace": "shop", "name": "storage"},
		"spec":     map[string]any{"config": `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24"}}`},
	}))
}

// readsGaps reads the cluster until it has the wanted gaps, because the API server needs a
// moment to apply new rights.
func readsGaps(t *testing.T, cfg *rest.Config, want []string) *blocks.Snapshot {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		s := readLive(t, cfg, KubernetesOptions{})
		if slices.Equal(want, gapTexts(s)) {
			return s
		}
		if time.Now().After(deadline) {
			diff(t, "gaps after 20 s", want, gapTexts(s))
			return s
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestReadWhereabouts: Whereabouts' kinds are read, saved, and read again from the saved
// file. They are no gap if Whereabouts is not installed. If they may not be read, the gap
// names the right. Network attachments are only listed if Whereabouts is installed.
func TestReadWhereabouts(t *testing.T) {
	t.Parallel()
	c := seeded(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.Attachments}})
	attach(t, c)
	cfg, err := c.UserConfig("auditor")
	must(t, err)
	must(t, c.Allow(t.Context(), "auditor", auditorRules("list")...))
	s := readsGaps(t, cfg, nil)
	if len(s.NetworkAttachments) > 0 || !s.Complete() {
		t.Errorf("without Whereabouts: %v, gaps %v", s.NetworkAttachments, s.Gaps)
	}
	must(t, c.InstallCRDs(t.Context(), testcluster.Whereabouts))
	storage(t, c)
	readsGaps(t, cfg, []string{
		"ippools.whereabouts.cni.cncf.io: forbidden: needs the right to list ippools.whereabouts.cni.cncf.io",
		"network-attachment-definitions: forbidden: needs the right to list network-attachment-definitions.k8s.cni.cncf.io",
		"nodeslicepools: forbidden: needs the right to list nodeslicepools.whereabouts.cni.cncf.io",
		"overlappingrangeipreservations: forbidden: needs the right to list overlappingrangeipreservations.whereabouts.cni.cncf.io",
	})

	must(t, c.Allow(t.Context(), "auditor", append(auditorRules("list"),
		rbacv1.PolicyRule{APIGroups: []string{"whereabouts.cni.cncf.io", "k8s.cni.cncf.io"}, Resources: []string{"*"}, Verbs: []string{"list"}})...))
	readsGaps(t, cfg, nil)
	r := recorder(t)
	k := reader(t, cfg, KubernetesOptions{Record: r}, 1)
	s, err = k.Read(t.Context())
	must(t, err)
	if len(s.WhereaboutsPools) != 1 || len(s.WhereaboutsReservations) != 1 || len(s.NodeSlicePools) != 1 || len(s.NetworkAttachments) != 1 || !s.Complete() {
		t.Fatalf("%v %v %v %v, gaps %v", s.WhereaboutsPools, s.WhereaboutsReservations, s.NodeSlicePools, s.NetworkAttachments, s.Gaps)
	}
	p := s.WhereaboutsPools[0]
	diff(t, "allocations", []blocks.WhereaboutsAllocation{{Addr: netip.MustParseAddr("10.9.0.5"), WhereaboutsOwner: blocks.WhereaboutsOwner{
		Pod: blocks.Key{Namespace: "shop", Name: "db-0"}, ContainerID: "c0", Interface: "net1"}}}, p.Allocations)
	if p.UID() == "" || p.ResourceVersion() == "" || p.Written.IsZero() || len(s.Pools) == 0 || s.Pools[0].Name == p.Name {
		t.Errorf("pool %+v, and Calico's %v", p, s.Pools)
	}
	saved, _ := read(t, save(t, r, s))
	sameSnapshot(t, "saved", s, saved)
	again, err := k.Reread(t.Context(), s, []blocks.Resource{blocks.WhereaboutsPools, blocks.Pods})
	must(t, err)
	if len(again.WhereaboutsPools) != 1 || len(again.NetworkAttachments) != 1 {
		t.Errorf("read again: %v, %v", again.WhereaboutsPools, again.NetworkAttachments)
	}
}

// TestWatchFollowsWhereabouts: a watch detects a new installation of Whereabouts, and then
// follows its objects and network attachments.
func TestWatchFollowsWhereabouts(t *testing.T) {
	t.Parallel()
	c := cached(t)
	must(t, c.InstallCRDs(t.Context(), testcluster.Attachments))
	attach(t, c)
	w, _ := watching(t, c.Config)
	if s := becomesEqual(t, w, c.Config); len(s.NetworkAttachments) > 0 {
		t.Errorf("without Whereabouts: %v", s.NetworkAttachments)
	}
	must(t, c.InstallCRDs(t.Context(), testcluster.Whereabouts))
	storage(t, c)
	eventually(t, w, "Whereabouts is there", func(s *blocks.Snapshot) bool {
		return len(s.WhereaboutsPools) == 1 && len(s.WhereaboutsReservations) == 1 && len(s.NodeSlicePools) == 1 && len(s.NetworkAttachments) == 1
	})
	becomesEqual(t, w, c.Config)
	must(t, c.Delete(t.Context(), whereaboutsPool, "kube-system", "10.9.0.0-24"))
	if s := becomesEqual(t, w, c.Config); len(s.WhereaboutsPools) > 0 {
		t.Errorf("%v", s.WhereaboutsPools)
	}
}
