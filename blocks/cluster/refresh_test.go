package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// inBothGroups runs a test on a small cluster of each API group.
func inBothGroups(t *testing.T, test func(*testing.T, *testcluster.Cluster, testcluster.Group)) {
	t.Run("crd.projectcalico.org", func(t *testing.T) { test(t, cluster(t), testcluster.CRDv1) })
	t.Run("projectcalico.org", func(t *testing.T) {
		from := cluster(t)
		c := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
		must(t, testcluster.CopyToNative(t.Context(), from, c))
		test(t, c, testcluster.NativeV3)
	})
}

func namesOf[T any](objects []T, name func(*T) string) []string {
	out := []string{}
	for i := range objects {
		out = append(out, name(&objects[i]))
	}
	return out
}

func blockNames(s *blocks.Snapshot) []string {
	return namesOf(s.Blocks, func(b *blocks.Block) string { return b.Name })
}

// Requested objects appear as in a full reading, whether changed, deleted or new. All other
// data is unchanged.
func TestRefresh(t *testing.T) {
	t.Parallel()
	inBothGroups(t, func(t *testing.T, c *testcluster.Cluster, g testcluster.Group) {
		ctx := t.Context()
		k := reader(t, c.Config, KubernetesOptions{})
		prev, err := k.Read(ctx)
		must(t, err)
		untouched, err := reader(t, c.Config, KubernetesOptions{}).Read(ctx)
		must(t, err)

		deleted, changed, other := prev.Blocks[0], prev.Blocks[1], prev.Blocks[2]
		must(t, c.Delete(ctx, g.Resource("ipamblocks"), "", deleted.Name))
		for _, name := range []string{changed.Name, other.Name} {
			must(t, c.Edit(ctx, g.Resource("ipamblocks"), "", name, func(o map[string]any) {
				o["spec"].(map[string]any)["affinity"] = "host:n9"
			}))
		}
		made := prefix("10.64.99.0/26")
		must(t, c.Create(ctx, g.Resource("blockaffinities"), map[string]any{
			"metadata": map[string]any{"name": blocks.AffinityName("n1", made)},
			"spec":     map[string]any{"cidr": made.String(), "node": "n1", "state": "pending", "type": "host", "deleted": deletedMark(g, false)},
		}))
		must(t, c.Edit(ctx, g.Resource("ipamconfigs"), "", "default", func(o map[string]any) {
			o["spec"].(map[string]any)["strictAffinity"] = true
		}))
		handle := prev.Handles[0].Name
		must(t, c.Delete(ctx, g.Resource("ipamhandles"), "", handle))
		must(t, c.Create(ctx, g.Resource("ipreservations"), map[string]any{
			"metadata": map[string]any{"name": "new"}, "spec": map[string]any{"reservedCIDRs": []any{"10.64.75.0/30"}},
		}))
		must(t, c.Delete(ctx, g.Resource("ipreservations"), "", prev.Reservations[0].Name))

		got, err := k.Refresh(ctx, prev, []blocks.Ref{
			{Resource: blocks.Blocks, Name: deleted.Name}, {Resource: blocks.Blocks, Name: changed.Name},
			{Resource: blocks.Blocks, Name: blocks.BlockName(made)},
			{Resource: blocks.Affinities, Name: blocks.AffinityName("n1", made)},
			{Resource: blocks.Affinities, Name: blocks.AffinityName("n2", made)},
			{Resource: blocks.IPAMConfigs, Name: "default"}, {Resource: blocks.ClusterInfos, Name: "default"},
			{Resource: blocks.Handles, Name: handle}, {Resource: blocks.Nodes, Name: "n1"},
			{Resource: blocks.Pods, Node: "n1"}, {Resource: blocks.Pods, Namespace: "shop", Name: "n2-0"},
			{Resource: blocks.Namespaces, Name: "shop"}, {Resource: blocks.Pools},
			{Resource: blocks.Reservations},
		})
		must(t, err)
		want, err := reader(t, c.Config, KubernetesOptions{}).Read(ctx)
		must(t, err)
		if got.Cluster.TakenAt.Before(prev.Cluster.TakenAt) || got.Cluster.TakenAt.After(want.Cluster.TakenAt) {
			t.Errorf("taken at %v, between readings at %v and %v", got.Cluster.TakenAt, prev.Cluster.TakenAt, want.Cluster.TakenAt)
		}
		want.Cluster.TakenAt, prev.Cluster.TakenAt = got.Cluster.TakenAt, untouched.Cluster.TakenAt
		// It was not requested, so it is unchanged.
		i := slices.IndexFunc(want.Blocks, func(b blocks.Block) bool { return b.Name == other.Name })
		want.Blocks[i] = other
		diff(t, "the snapshot", want, got)
		diff(t, "the one before", untouched, prev)
		if !got.IPAM.StrictAffinity || len(got.Blocks) != 3 || len(got.Affinities) != 5 {
			t.Errorf("strict %t, blocks %v, %d affinities", got.IPAM.StrictAffinity, blockNames(got), len(got.Affinities))
		}

		// A deleted object, and a new one with a name that Calico would not use.
		must(t, c.Delete(ctx, g.Resource("ipamconfigs"), "", "default"))
		must(t, c.Create(ctx, g.Resource("blockaffinities"), map[string]any{
			"metadata": map[string]any{"name": "by-hand"},
			"spec":     map[string]any{"cidr": made.String(), "node": "n2", "state": "", "type": "host", "deleted": deletedMark(g, true)},
		}))
		next, err := k.Refresh(ctx, got, []blocks.Ref{
			{Resource: blocks.IPAMConfigs, Name: "default"}, {Resource: blocks.Affinities, Name: "by-hand"},
			{Resource: blocks.IPAMConfigs, Name: "another"},
		})
		must(t, err)
		diff(t, "the settings without an object", blocks.DefaultIPAMConfig(), next.IPAM)
		if j := slices.IndexFunc(next.Affinities, func(a blocks.Affinity) bool { return a.Name == "by-hand" }); j < 0 || !next.Affinities[j].SoftDeleted {
			t.Errorf("affinities %+v", next.Affinities)
		}
	})
}

func deletedMark(g testcluster.Group, deleted bool) any {
	if g == testcluster.NativeV3 {
		return deleted
	}
	return fmt.Sprint(deleted)
}

// Pods with a label are replaced as a group: deleted ones vanish, new ones appear, and
// other pods of the namespace are unchanged.
func TestRefreshPodsWithALabel(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.Node(ctx, seeding.Node{Name: "n1"}))
	pod := func(namespace, name, app string) {
		_, err := s.Pod(ctx, seeding.Pod{Namespace: namespace, Name: name, Node: "n1", HostNetwork: true, Labels: map[string]string{"app": app}})
		must(t, err)
	}
	must(t, s.Namespace(ctx, "shop", nil, nil))
	must(t, s.Namespace(ctx, "other", nil, nil))
	for _, name := range []string{"web-1", "web-2"} {
		pod("shop", name, "web")
		pod("other", name, "web")
	}
	pod("shop", "api-1", "api")
	k := reader(t, c.Config, KubernetesOptions{Budgets: true}, 1)
	prev, err := k.Read(ctx)
	must(t, err)
	for _, namespace := range []string{"shop", "other"} {
		must(t, s.DeletePod(ctx, namespace, "web-1", true))
		pod(namespace, "web-3", "web")
	}
	must(t, s.DeletePod(ctx, "shop", "api-1", true))
	got, err := k.Refresh(ctx, prev, []blocks.Ref{{Resource: blocks.Pods, Namespace: "shop", Label: "app=web"}})
	must(t, err)
	diff(t, "pods", []string{"other/web-1", "other/web-2", "shop/api-1", "shop/web-2", "shop/web-3"}, namesOf(got.Workloads, func(w **blocks.Workload) string { return (*w).FullName() }))
}

// Pods of a node are replaced as a group: deleted ones vanish. A pod that was recreated
// elsewhere is found by its name and by its new node.
func TestRefreshPodsOfANode(t *testing.T) {
	c := cluster(t)
	ctx := t.Context()
	s, err := seeding.New(c)
	must(t, err)
	k := reader(t, c.Config, KubernetesOptions{}, 2)
	prev, err := k.Read(ctx)
	must(t, err)
	podsOf := func(s *blocks.Snapshot, node string) []string {
		mine := slices.DeleteFunc(slices.Clone(s.Workloads), func(w *blocks.Workload) bool { return w.Node != node })
		return namesOf(mine, func(w **blocks.Workload) string { return (*w).FullName() })
	}
	must(t, s.DeletePod(ctx, "shop", "n1-0", true))
	must(t, s.DeletePod(ctx, "shop", "n1-1", true))
	_, err = s.Pod(ctx, seeding.Pod{Namespace: "shop", Name: "n1-1", Node: "n2"})
	must(t, err)
	must(t, s.DeletePod(ctx, "shop", "n3-0", true))

	got, err := k.Refresh(ctx, prev, []blocks.Ref{{Resource: blocks.Pods, Node: "n1"}})
	must(t, err)
	diff(t, "pods of n1", []string{"shop/n1-2"}, podsOf(got, "n1"))
	diff(t, "pods of n2, which was not asked for", []string{"shop/n2-0", "shop/n2-1", "shop/n2-2"}, podsOf(got, "n2"))

	got, err = k.Refresh(ctx, prev, []blocks.Ref{{Resource: blocks.Pods, Namespace: "shop", Name: "n1-1"}})
	must(t, err)
	diff(t, "pods of n1", []string{"shop/n1-0", "shop/n1-2"}, podsOf(got, "n1"))
	diff(t, "pods of n2", []string{"shop/n1-1", "shop/n2-0", "shop/n2-1", "shop/n2-2"}, podsOf(got, "n2"))

	got, err = k.Refresh(ctx, prev, []blocks.Ref{{Resource: blocks.Pods, Node: "n2"}, {Resource: blocks.Pods, Namespace: "shop", Name: "n3-0"}})
	must(t, err)
	diff(t, "pods of n1", []string{"shop/n1-0", "shop/n1-2"}, podsOf(got, "n1"))
	diff(t, "pods of n3", []string{"shop/n3-1", "shop/n3-2"}, podsOf(got, "n3"))
	if !slices.IsSortedFunc(got.Workloads, func(a, b *blocks.Workload) int { return strings.Compare(a.FullName(), b.FullName()) }) {
		t.Errorf("not sorted: %v", namesOf(got.Workloads, func(w **blocks.Workload) string { return (*w).FullName() }))
	}
}

// An undecodable object is a gap until it is fixed, and affects no other object.
func TestRefreshMalformed(t *testing.T) {
	inBothGroups(t, func(t *testing.T, c *testcluster.Cluster, g testcluster.Group) {
		ctx := t.Context()
		c.LoosenCRD(t, g.Resource("ipamblocks"))
		k := reader(t, c.Config, KubernetesOptions{})
		prev, err := k.Read(ctx)
		must(t, err)
		name := prev.Blocks[1].Name
		write := func(cidr string) {
			must(t, c.Edit(ctx, g.Resource("ipamblocks"), "", name, func(o map[string]any) { o["spec"].(map[string]any)["cidr"] = cidr }))
		}
		write("10.64.75.0/x")
		refs := []blocks.Ref{{Resource: blocks.Blocks, Name: name}}
		bad, err := k.Refresh(ctx, prev, refs)
		must(t, err)
		if len(bad.Blocks) != 3 || len(bad.Gaps) != 1 || bad.Gaps[0].Name != name || bad.Gaps[0].Field != "spec.cidr" {
			t.Fatalf("blocks %v, gaps %v", blockNames(bad), bad.Gaps)
		}
		again, err := k.Refresh(ctx, bad, append(refs, blocks.Ref{Resource: blocks.Blocks, Name: prev.Blocks[0].Name}))
		must(t, err)
		diff(t, "gaps", gapTexts(bad), gapTexts(again))
		elsewhere, err := k.Refresh(ctx, bad, []blocks.Ref{{Resource: blocks.Blocks, Name: prev.Blocks[0].Name}})
		must(t, err)
		diff(t, "gaps", gapTexts(bad), gapTexts(elsewhere))
		write(prev.Blocks[1].CIDR.String())
		good, err := k.Refresh(ctx, bad, refs)
		must(t, err)
		if len(good.Blocks) != 4 || len(good.Gaps) != 0 {
			t.Errorf("blocks %v, gaps %v", blockNames(good), good.Gaps)
		}
	})
}

// Undecodable settings are not replaced by Calico's defaults, and are known again once
// fixed.
func TestRefreshMalformedSettings(t *testing.T) {
	c := cluster(t)
	c.LoosenCRD(t, testcluster.CRDv1.Resource("ipamconfigs"))
	k := reader(t, c.Config, KubernetesOptions{})
	prev, err := k.Read(t.Context())
	must(t, err)
	refs := []blocks.Ref{{Resource: blocks.IPAMConfigs, Name: "default"}}
	set := func(v any) *blocks.Snapshot {
		must(t, c.Edit(t.Context(), testcluster.CRDv1.Resource("ipamconfigs"), "", "default", func(o map[string]any) {
			o["spec"].(map[string]any)["strictAffinity"] = v
		}))
		s, err := k.Refresh(t.Context(), prev, refs)
		must(t, err)
		return s
	}
	bad := set("perhaps")
	if _, missing := bad.Missing(blocks.IPAMConfigs); !missing {
		t.Errorf("gaps %v", bad.Gaps)
	}
	prev = bad
	if good := set(true); len(good.Gaps) > 0 || !good.IPAM.StrictAffinity {
		t.Errorf("gaps %v, %+v", good.Gaps, good.IPAM)
	}
}

// A failed read is an error with its cause, never a missing object.
func TestRefreshUnreadable(t *testing.T) {
	c := cluster(t)
	ctx := t.Context()
	prev := readLive(t, c.Config, KubernetesOptions{})
	fails := func(t *testing.T, cfg *rest.Config, want string, refs ...blocks.Ref) {
		t.Helper()
		s, err := reader(t, cfg, KubernetesOptions{}).Refresh(ctx, prev, refs)
		if s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	block := blocks.Ref{Resource: blocks.Blocks, Name: prev.Blocks[0].Name}
	t.Run("forbidden", func(t *testing.T) {
		cfg, err := c.UserConfig("refresher")
		must(t, err)
		must(t, c.Allow(ctx, "refresher", rbacv1.PolicyRule{APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"blockaffinities"}, Verbs: []string{"list"}}))
		fails(t, cfg, "needs the right to list ipamblocks.crd.projectcalico.org", block)
		fails(t, cfg, "needs the right to list pods", blocks.Ref{Resource: blocks.Pods, Node: "n1"})
		fails(t, cfg, "reading ippools again: ", blocks.Ref{Resource: blocks.Pools})
		must(t, c.Allow(ctx, "refresher", rbacv1.PolicyRule{APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"ipamblocks"}, Verbs: []string{"list"}}))
		s, err := reader(t, cfg, KubernetesOptions{}).Refresh(ctx, prev, []blocks.Ref{block})
		must(t, err)
		diff(t, "blocks", prev.Blocks, s.Blocks)
	})
	t.Run("gone", func(t *testing.T) {
		k, err := NewKubernetes(c.Config, KubernetesOptions{})
		must(t, err)
		k.client.wait.retry = []time.Duration{time.Millisecond}
		k.client.rest.Client.Transport = refusing{}
		if _, err := k.Refresh(ctx, prev, []blocks.Ref{block}); err == nil || !strings.Contains(err.Error(), "no such luck") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no such reference", func(t *testing.T) {
		for _, ref := range []blocks.Ref{
			{}, {Resource: "secrets", Name: "x"}, {Resource: blocks.Pods}, {Resource: blocks.IPAMConfigs}, {Resource: blocks.Pods, Name: "x"}, {Resource: blocks.Pods, Namespace: "x"},
			{Resource: blocks.Nodes, Node: "n1"}, {Resource: blocks.Pods, Namespace: "shop", Label: "app=web"}, // pods' labels were not read
			{Resource: blocks.Blocks, Namespace: "shop", Name: "x"}, {Resource: blocks.Pods, Name: "x", Node: "n1"},
		} {
			if s, err := reader(t, c.Config, KubernetesOptions{}).Refresh(ctx, prev, []blocks.Ref{ref}); err == nil {
				t.Errorf("%+v: got %v", ref, s)
			}
		}
	})
	t.Run("not served", func(t *testing.T) {
		k := reader(t, c.Config, KubernetesOptions{})
		_, err := k.Read(ctx)
		must(t, err)
		deleteCRD(t, c, "ipamhandles.crd.projectcalico.org")
		deleteCRD(t, c, "ipreservations.crd.projectcalico.org")
		handle := blocks.Ref{Resource: blocks.Handles, Name: prev.Handles[0].Name}
		if _, err := k.Refresh(ctx, prev, []blocks.Ref{handle}); err == nil || !strings.Contains(err.Error(), "the API server has no ipamhandles") {
			t.Errorf("a kind that went: got %v", err)
		}
		fails(t, c.Config, "the cluster has no CRD ipamhandles", handle)
		// The kind is not served, so no objects exist.
		s, err := reader(t, c.Config, KubernetesOptions{}).Refresh(ctx, prev, []blocks.Ref{{Resource: blocks.Reservations, Name: "gateways"}})
		must(t, err)
		if len(prev.Reservations) != 1 || len(s.Reservations) != 0 {
			t.Errorf("%d reservations, then %d", len(prev.Reservations), len(s.Reservations))
		}
	})
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("no such luck")
}

// AffinityName returns the names under which Calico's own client stores affinities.
func TestAffinityNames(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s, err := seeding.New(c)
	must(t, err)
	want := map[string]bool{}
	for _, cidr := range []netip.Prefix{prefix("10.1.2.0/26"), prefix("fd00:10:1:2:3:4:5:40/122")} {
		limit := 252 - len(blocks.BlockName(cidr)) // the longest uncut name has 252 characters
		for _, n := range []int{1, limit - 2, limit - 1, limit, limit + 1, 253} {
			node := strings.Repeat("n", n-1) + "x"
			must(t, s.Affinity(t.Context(), node, cidr, "confirmed"))
			want[blocks.AffinityName(node, cidr)] = true
		}
	}
	all, err := c.List(t.Context(), testcluster.CRDv1.Resource("blockaffinities"))
	must(t, err)
	for i := range all {
		delete(want, all[i].GetName())
	}
	if len(all) != 4+12 || len(want) > 0 {
		t.Errorf("%d affinities; Calico did not use the names %v", len(all), want)
	}
}
