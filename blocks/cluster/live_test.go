package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// These tests read a real API server; see internal/testcluster.

// cluster returns an API server with a small cluster: four nodes, each with a block and
// three pods, and one object of every other kind.
func cluster(t *testing.T) *testcluster.Cluster {
	t.Helper()
	return seeded(t, testcluster.Options{})
}

func seeded(t *testing.T, opts testcluster.Options) *testcluster.Cluster {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Shared(t, opts)
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.64.75.0/24", BlockSize: 26}))
	must(t, s.Namespace(ctx, "shop", nil, map[string]string{"cni.projectcalico.org/ipv4pools": `["pods"]`}))
	var pods []seeding.Pod
	for n := range 4 {
		node := fmt.Sprintf("n%d", n+1)
		must(t, s.Node(ctx, seeding.Node{Name: node}))
		for i := range 3 {
			pods = append(pods, seeding.Pod{Namespace: "shop", Name: fmt.Sprintf("%s-%d", node, i), Node: node})
		}
	}
	must(t, s.Pods(ctx, pods))
	must(t, s.Reservation(ctx, "gateways", netip.MustParsePrefix("10.64.76.0/30"), netip.MustParsePrefix("fd00::/64")))
	must(t, c.Create(ctx, testcluster.CRDv1.Resource("bgppeers"), map[string]any{
		"metadata": map[string]any{"name": "tor"}, "spec": map[string]any{"peerIP": "172.16.0.1", "asNumber": int64(64600)},
	}))
	must(t, s.BGPFilter(ctx, "hosts-only", apiv3.BGPFilterSpec{ExportV4: []apiv3.BGPFilterRuleV4{{Action: apiv3.Reject}}}))
	must(t, c.Create(ctx, testcluster.CRDv1.Resource("bgpconfigurations"), map[string]any{
		"metadata": map[string]any{"name": "default"}, "spec": map[string]any{"nodeToNodeMeshEnabled": false},
	}))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reader returns a reader with short waits. Without a page size it uses the default pages
// and whole lists.
func reader(t *testing.T, cfg *rest.Config, opts KubernetesOptions, pageSize ...int64) *Kubernetes {
	t.Helper()
	k, err := NewKubernetes(cfg, opts)
	must(t, err)
	for _, size := range pageSize {
		k.pageSize, k.whole = size, false
	}
	k.client.wait.retry = []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}
	return k
}

func readLive(t *testing.T, cfg *rest.Config, opts KubernetesOptions, pageSize ...int64) *blocks.Snapshot {
	t.Helper()
	s, err := reader(t, cfg, opts, pageSize...).Read(t.Context())
	must(t, err)
	return s
}

func gapTexts(s *blocks.Snapshot) []string {
	var out []string
	for _, g := range s.Gaps {
		out = append(out, g.String())
	}
	return out
}

func TestReadCluster(t *testing.T) {
	c := cluster(t)
	before := time.Now().Add(-2 * time.Second)
	last := map[blocks.Resource]Progress{}
	s := readLive(t, c.Config, KubernetesOptions{Progress: func(p Progress) { last[p.Resource] = p }}, 5)
	diff(t, "gaps", []string(nil), gapTexts(s))
	if s.Cluster.TakenAt.Before(before) || s.Cluster.TakenAt.After(time.Now()) {
		t.Errorf("taken at %v", s.Cluster.TakenAt)
	}
	s.Cluster.TakenAt = time.Time{}
	diff(t, "cluster", blocks.Cluster{
		GUID: seeding.ClusterGUID, Datastore: "kubernetes", APIGroup: decode.GroupCRD, CalicoVersion: "v3.31.0", Live: true,
		APIGroupReason: "only crd.projectcalico.org/v1 serves ipamblocks",
	}, s.Cluster)
	var owners []string
	for _, b := range s.Blocks {
		owners = append(owners, b.CIDR.String()+" "+b.Owner.Node())
	}
	if len(owners) != 4 || !strings.HasPrefix(owners[0], "10.64.75.0/26 n") || !strings.HasPrefix(owners[3], "10.64.75.192/26 n") {
		t.Errorf("blocks %v, want one of each node, in order", owners)
	}
	if len(s.Nodes) != 4 || len(s.Pools) != 1 || len(s.Affinities) != 4 || len(s.Reservations) != 1 || len(s.BGPPeers) != 1 || len(s.BGPFilters) != 1 {
		t.Errorf("%d nodes, %d pools, %d affinities, %d reservations, %d peers, %d filters",
			len(s.Nodes), len(s.Pools), len(s.Affinities), len(s.Reservations), len(s.BGPPeers), len(s.BGPFilters))
	}
	if !s.IPAM.Present || !s.Controllers.NodeController || s.BGP.Mesh || !s.Felix.Present {
		t.Errorf("configuration %+v %+v %+v %+v", s.IPAM, s.Controllers, s.BGP, s.Felix)
	}
	pods := last[blocks.Pods]
	if pods.Done != len(s.Workloads) || pods.Total != len(s.Workloads) || len(last) != len(calicoAndCore) {
		t.Errorf("last progress %v, of pods %+v for %d pods", last, pods, len(s.Workloads))
	}
	if s.Nodes[0].Written.IsZero() || s.Blocks[0].Written.IsZero() || !s.Workloads[0].Written.IsZero() {
		t.Error("times of the last write: want those of nodes and blocks, none of pods")
	}
}

// The page size only affects the number of requests.
func TestPagesMakeNoDifference(t *testing.T) {
	c := cluster(t)
	want := readLive(t, c.Config, KubernetesOptions{})
	for _, size := range []int64{1, 7, 10000} {
		got := readLive(t, c.Config, KubernetesOptions{}, size)
		got.Cluster.TakenAt = want.Cluster.TakenAt
		diff(t, "snapshot", want, got)
	}
}

// The same state yields the same snapshot through either API group and from files of
// either.
func TestSourcesAgree(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Pool(t.Context(), "pods-v6", apiv3.IPPoolSpec{CIDR: "fd00:10::/64", BlockSize: 122, NodeSelector: "has(zone)",
		AllowedUses: []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseTunnel, apiv3.IPPoolAllowedUseWorkload}}))
	must(t, s.Node(t.Context(), seeding.Node{Name: "dual", Labels: map[string]string{"zone": "a"}, AllocatablePods: 20,
		Taints: []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}}, OS: "windows"}))
	_, err = s.Pod(t.Context(), seeding.Pod{Namespace: "shop", Name: "v6", Node: "dual", IPv6Only: true})
	must(t, err)
	_, err = s.Tunnel(t.Context(), seeding.VXLANv6, "dual", netip.MustParsePrefix("fd00:10::/64"))
	must(t, err)
	must(t, s.TerminatePod(t.Context(), "shop", "n1-0", true))
	dumped := func(groups ...testcluster.Group) *blocks.Snapshot {
		root := t.TempDir()
		must(t, c.Dump(t.Context(), root, groups...))
		s, warnings := read(t, root)
		for _, w := range warnings {
			if !strings.HasPrefix(w, "ignored ") {
				t.Errorf("warning %q", w)
			}
		}
		return s
	}
	sameButCluster := func(what string, want, got *blocks.Snapshot, options ...cmp.Option) {
		t.Helper()
		options = append(options, equal, cmpopts.IgnoreFields(blocks.Snapshot{}, "Cluster"))
		if d := cmp.Diff(want, got, options...); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want := readLive(t, c.Config, KubernetesOptions{})
	sameButCluster("files of crd.projectcalico.org/v1", want, dumped(testcluster.CRDv1))

	must(t, testcluster.MoveToNative(t.Context(), c))
	native := readLive(t, c.Config, KubernetesOptions{})
	if native.Cluster.APIGroup != decode.GroupNative || native.Cluster.APIGroupReason != "only projectcalico.org/v3 serves ipamblocks" {
		t.Errorf("read %s because %s", native.Cluster.APIGroup, native.Cluster.APIGroupReason)
	}
	anyMeta := cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == ".Pin" || name == ".Written" || name == ".Created"
	}, cmp.Ignore())
	sameButCluster("projectcalico.org/v3", want, native, anyMeta)
	sameButCluster("files of projectcalico.org/v3", native, dumped(testcluster.NativeV3))
}

// While both groups hold blocks, the phase of the DatastoreMigration decides, else the
// locks, else the blocks that record the live pods' addresses.
func TestBothGroupsServed(t *testing.T) {
	c := cluster(t)
	must(t, c.InstallCRDs(t.Context(), testcluster.NativeV3))
	chosen := func(group string, count int, locked bool, reason string) {
		t.Helper()
		s := readLive(t, c.Config, KubernetesOptions{})
		if s.Cluster.APIGroup != group || len(s.Blocks) != count || !strings.Contains(s.Cluster.APIGroupReason, reason) || s.Cluster.OtherGroup != otherGroup(group) || s.Cluster.OtherLocked != locked {
			t.Errorf("%d blocks of %s because %q, other %q locked %v; want %d of %s because %q", len(s.Blocks), s.Cluster.APIGroup, s.Cluster.APIGroupReason, s.Cluster.OtherGroup, s.Cluster.OtherLocked, count, group, reason)
		}
		diff(t, "gaps", []string(nil), gapTexts(s))
	}
	chosen(decode.GroupCRD, 4, false, "projectcalico.org/v3 is locked or has no ClusterInformation")
	must(t, testcluster.CopyToNative(t.Context(), c, c))
	s := readLive(t, c.Config, KubernetesOptions{})
	const unknown = "both API groups serve ipamblocks, and nothing shows which one Calico uses"
	diff(t, "gaps", []string{"ipamblocks: " + unknown, "ippools: " + unknown}, gapTexts(s))
	must(t, c.Delete(t.Context(), testcluster.NativeV3.Resource("ipamblocks"), "", s.Blocks[0].Name))
	chosen(decode.GroupCRD, 4, false, "the blocks of crd.projectcalico.org/v1 record the addresses of live pods")

	lock := func(group testcluster.Group, locked bool) {
		t.Helper()
		must(t, c.Edit(t.Context(), group.Resource("clusterinformations"), "", "default", func(o map[string]any) {
			o["spec"].(map[string]any)["datastoreReady"] = !locked
		}))
	}
	lock(testcluster.CRDv1, true)
	chosen(decode.GroupNative, 3, true, "crd.projectcalico.org/v1 is locked")

	must(t, c.InstallCRDs(t.Context(), testcluster.Migration))
	must(t, c.Create(t.Context(), testcluster.Migration.Resource("datastoremigrations"), map[string]any{
		"metadata": map[string]any{"name": "v1-to-v3"}, "spec": map[string]any{"type": "APIServerToCRDs"},
	}))
	for _, p := range []struct {
		phase, group string
		count        int
	}{
		{"Pending", decode.GroupCRD, 4}, {"Migrating", decode.GroupCRD, 4}, {"WaitingForConflictResolution", decode.GroupCRD, 4}, {"Failed", decode.GroupCRD, 4},
		{"Converged", decode.GroupNative, 3}, {"Complete", decode.GroupNative, 3},
	} {
		must(t, c.Edit(t.Context(), testcluster.Migration.Resource("datastoremigrations"), "", "v1-to-v3", func(o map[string]any) {
			o["status"] = map[string]any{"phase": p.phase}
		}))
		chosen(p.group, p.count, p.group == decode.GroupNative, "DatastoreMigration v1-to-v3 is in phase "+p.phase)
	}
	must(t, c.RemoveCRDs(t.Context(), testcluster.Migration))
	lock(testcluster.CRDv1, false)

	t.Setenv("CALICO_API_GROUP", "projectcalico.org/v3")
	s = readLive(t, c.Config, KubernetesOptions{})
	if s.Cluster.APIGroup != decode.GroupNative || len(s.Blocks) != 3 || s.Cluster.APIGroupReason != "CALICO_API_GROUP is projectcalico.org/v3" {
		t.Errorf("%d blocks of %s because %s", len(s.Blocks), s.Cluster.APIGroup, s.Cluster.APIGroupReason)
	}
	t.Setenv("CALICO_API_GROUP", "")

	// Calico's aggregated API server serves the newer group without blocks and handles. It
	// must not be mistaken for native CRDs.
	for _, r := range []string{"ipamblocks", "ipamhandles"} {
		deleteCRD(t, c, r+".projectcalico.org")
	}
	s = readLive(t, c.Config, KubernetesOptions{})
	if s.Cluster.APIGroup != decode.GroupCRD || len(s.Blocks) != 4 || !strings.Contains(s.Cluster.APIGroupReason, "aggregated API") {
		t.Errorf("%d blocks of %s because %s", len(s.Blocks), s.Cluster.APIGroup, s.Cluster.APIGroupReason)
	}
	diff(t, "gaps", []string(nil), gapTexts(s))
}

// TestBothGroupsDenied: while both groups hold blocks, an account that may not read the evidence of
// one of them must not audit the other, which may be out of date.
func TestBothGroupsDenied(t *testing.T) {
	c := cluster(t)
	must(t, c.InstallCRDs(t.Context(), testcluster.NativeV3))
	must(t, c.InstallCRDs(t.Context(), testcluster.Migration))
	must(t, testcluster.CopyToNative(t.Context(), c, c))
	blocksOfNative, err := c.List(t.Context(), testcluster.NativeV3.Resource("ipamblocks"))
	must(t, err)
	must(t, c.Delete(t.Context(), testcluster.NativeV3.Resource("ipamblocks"), "", blocksOfNative[0].GetName()))
	cfg, err := c.UserConfig("auditor")
	must(t, err)
	for _, denied := range []string{
		"ipamblocks.crd.projectcalico.org", "ipamblocks.projectcalico.org", "datastoremigrations.migration.projectcalico.org",
		"clusterinformations.crd.projectcalico.org", "clusterinformations.projectcalico.org",
	} {
		var rules []rbacv1.PolicyRule
		for _, k := range decode.Kinds {
			for _, group := range []string{decode.GroupCRD, decode.GroupNative} {
				if resource, of := k.RBAC(group); resource+"."+of != denied {
					rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{of}, Resources: []string{resource}, Verbs: []string{"list"}})
				}
			}
		}
		must(t, c.Allow(t.Context(), "auditor", rules...))
		s := readLive(t, cfg, KubernetesOptions{})
		if strings.HasPrefix(denied, "clusterinformations") { // the blocks decide
			if s.Cluster.APIGroup != decode.GroupCRD || len(s.Blocks) != 4 || !strings.Contains(s.Cluster.APIGroupReason, "record the addresses of live pods") {
				t.Errorf("without %s: %d blocks of %s because %s", denied, len(s.Blocks), s.Cluster.APIGroup, s.Cluster.APIGroupReason)
			}
			continue
		}
		gap, missing := s.Missing(blocks.Pools)
		if want := "both API groups serve ipamblocks, and nothing shows which one Calico uses; forbidden: needs the right to list " + denied; !missing || gap.Reason != want {
			t.Errorf("without %s: %s read because %s; gaps %q", denied, s.Cluster.APIGroup, s.Cluster.APIGroupReason, gapTexts(s))
		}
	}

	must(t, c.Edit(t.Context(), testcluster.CRDv1.Resource("clusterinformations"), "", "default", func(o map[string]any) {
		o["spec"].(map[string]any)["datastoreReady"] = false
	}))
	must(t, c.Allow(t.Context(), "auditor", rbacv1.PolicyRule{APIGroups: []string{"crd.projectcalico.org", ""}, Resources: []string{"*"}, Verbs: []string{"list"}}))
	if _, missing := readLive(t, cfg, KubernetesOptions{}).Missing(blocks.ClusterInfos); !missing {
		t.Error("the lock of a group counts, which may not be in use")
	}
}

func deleteCRD(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	must(t, c.Dynamic.Resource(crds).Delete(t.Context(), name, metav1.DeleteOptions{}))
	plural, group, _ := strings.Cut(name, ".")
	version := map[string]string{"projectcalico.org": decode.GroupNative, "crd.projectcalico.org": decode.GroupCRD, "kubevirt.io": "kubevirt.io/v1"}[group]
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		list, err := c.Kube.Discovery().ServerResourcesForGroupVersion(version)
		must(t, err)
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("CRD %s is still served", name)
		}
	}
}

// Served kinds without objects are a gap: Calico's data is in etcd, or was moved.
func TestKeptElsewhere(t *testing.T) {
	c := cluster(t)
	for _, kind := range []string{"ipamblocks", "ippools"} {
		must(t, c.Dynamic.Resource(testcluster.CRDv1.Resource(kind).GroupVersionResource).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	s := readLive(t, c.Config, KubernetesOptions{})
	if len(s.Gaps) != 2 || !strings.Contains(s.Gaps[0].Reason, "outside its node's podCIDRs: Calico keeps its data elsewhere") ||
		!strings.Contains(s.Gaps[0].Reason, "were deleted: then create its IPPool again before pods start") { // projectcalico/calico#12457
		t.Errorf("gaps %v", gapTexts(s))
	}
	must(t, c.Delete(t.Context(), testcluster.CRDv1.Resource("clusterinformations"), "", "default"))
	s = readLive(t, c.Config, KubernetesOptions{})
	const none = ": crd.projectcalico.org/v1 has no ClusterInformation: Calico keeps its data elsewhere: in etcd, or in another API group after a migration"
	diff(t, "gaps", []string{"clusterinformations" + none, "ipamblocks" + none, "ippools" + none}, gapTexts(s))
}

// A missing CRD is a gap, never an empty list, if Calico requires the kind.
func TestMissingCRD(t *testing.T) {
	c := cluster(t)
	for _, plural := range []string{"ipamhandles", "ipamconfigs", "ipreservations"} {
		deleteCRD(t, c, plural+".crd.projectcalico.org")
	}
	s := readLive(t, c.Config, KubernetesOptions{})
	diff(t, "gaps", []string{
		"ipamconfigs: not served: the cluster has no CRD ipamconfigs of crd.projectcalico.org/v1",
		"ipamhandles: not served: the cluster has no CRD ipamhandles of crd.projectcalico.org/v1",
	}, gapTexts(s))
	if len(s.Blocks) != 4 || len(s.Reservations) != 0 {
		t.Errorf("%d blocks, %d reservations", len(s.Blocks), len(s.Reservations))
	}
	if _, missing := s.Missing(blocks.Handles); !missing {
		t.Error("handles are not missing")
	}

	must(t, c.RemoveCRDs(t.Context(), testcluster.CRDv1))
	_, err := reader(t, c.Config, KubernetesOptions{}).Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no Calico found in the cluster: it serves neither API group crd.projectcalico.org/v1 nor projectcalico.org/v3") {
		t.Errorf("a cluster without Calico: %v", err)
	}
}

// The reason names the missing right, and permitted kinds are still read.
func TestForbidden(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg, err := c.UserConfig("auditor")
	must(t, err)
	allow := func(rules ...rbacv1.PolicyRule) { must(t, c.Allow(t.Context(), "auditor", rules...)) }
	list := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
	}
	var allowed []string
	for _, k := range decode.Kinds {
		if !k.Core && k.Foreign == "" && k.Resource != blocks.Blocks && k.Resource != blocks.Reservations {
			allowed = append(allowed, string(k.Resource))
		}
	}
	allow(list("", "nodes", "namespaces"), list("crd.projectcalico.org", allowed...))
	s := readLive(t, cfg, KubernetesOptions{})
	diff(t, "gaps", []string{
		"ipamblocks: forbidden: needs the right to list ipamblocks.crd.projectcalico.org",
		"ipreservations: forbidden: needs the right to list ipreservations.crd.projectcalico.org",
		"pods: forbidden: needs the right to list pods",
	}, gapTexts(s))
	if len(s.Nodes) != 4 || len(s.Handles) == 0 || len(s.Blocks)+len(s.Workloads) > 0 {
		t.Errorf("%d nodes, %d handles, %d blocks, %d pods", len(s.Nodes), len(s.Handles), len(s.Blocks), len(s.Workloads))
	}

	// The right to list suffices.
	allow(list("", "nodes", "namespaces", "pods"), list("crd.projectcalico.org", "*"))
	want := readLive(t, c.Config, KubernetesOptions{})
	got := readLive(t, cfg, KubernetesOptions{})
	got.Cluster.TakenAt = want.Cluster.TakenAt
	diff(t, "snapshot", want, got)
}

// A bad object is a gap of its own, and hides no other.
func TestBadObjectInCluster(t *testing.T) {
	c := cluster(t)
	blockKind := testcluster.CRDv1.Resource("ipamblocks")
	all, err := c.List(t.Context(), blockKind)
	must(t, err)
	name := all[0].GetName()
	must(t, c.Edit(t.Context(), blockKind, "", name, func(o map[string]any) {
		o["spec"].(map[string]any)["cidr"] = "10.64.75.0/a"
	}))
	s := readLive(t, c.Config, KubernetesOptions{})
	if len(s.Blocks) != 3 || len(s.Gaps) != 1 {
		t.Fatalf("%d blocks, gaps %v", len(s.Blocks), s.Gaps)
	}
	g := s.Gaps[0]
	if g.Name != name || g.Field != "spec.cidr" || !g.OwnerKnown || g.Owner.Node() == "" || blocks.BlockName(g.Prefix) != name {
		t.Errorf("gap %+v", g)
	}
}

func TestReread(t *testing.T) {
	c := cluster(t)
	k := reader(t, c.Config, KubernetesOptions{})
	prev, err := k.Read(t.Context())
	must(t, err)
	kept := *prev
	kept.Blocks, kept.Nodes, kept.Gaps = slices.Clone(prev.Blocks), slices.Clone(prev.Nodes), slices.Clone(prev.Gaps)

	must(t, c.Delete(t.Context(), testcluster.CRDv1.Resource("ipamblocks"), "", prev.Blocks[0].Name))
	must(t, c.Delete(t.Context(), testcluster.Core[1], "", "n1"))
	next, err := k.Reread(t.Context(), prev, []blocks.Resource{blocks.Blocks})
	must(t, err)
	diff(t, "the snapshot before", &kept, prev)
	diff(t, "blocks", prev.Blocks[1:], next.Blocks)
	diff(t, "nodes, which were not read again", prev.Nodes, next.Nodes)
	diff(t, "cluster", prev.Cluster, next.Cluster)
	diff(t, "gaps", []string(nil), gapTexts(next))

	// A gap belongs to its resource: reading that resource again clears it.
	deleteCRD(t, c, "ipamhandles.crd.projectcalico.org")
	reread, err := k.Reread(t.Context(), next, []blocks.Resource{blocks.Handles, blocks.Nodes})
	must(t, err)
	if len(reread.Nodes) != 3 || len(reread.Handles) != 0 {
		t.Errorf("%d nodes, %d handles", len(reread.Nodes), len(reread.Handles))
	}
	want := []string{"ipamhandles: not served: the API server has no ipamhandles.crd.projectcalico.org"}
	diff(t, "gaps", want, gapTexts(reread))
	again, err := k.Reread(t.Context(), reread, []blocks.Resource{blocks.Nodes})
	must(t, err)
	diff(t, "gaps", want, gapTexts(again))

	// Reread works without a previous Read.
	fresh, err := reader(t, c.Config, KubernetesOptions{}).Reread(t.Context(), prev, []blocks.Resource{blocks.Nodes})
	must(t, err)
	if len(fresh.Nodes) != 3 || len(fresh.Blocks) != 4 {
		t.Errorf("%d nodes, %d blocks", len(fresh.Nodes), len(fresh.Blocks))
	}
}

// If an API server dies during a list, the reading soon ends with the objects read so far,
// and with gaps for the rest.
func TestServerDiesInMidList(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	whole := readLive(t, c.Config, KubernetesOptions{})
	var once sync.Once
	var died time.Time
	k, err := NewKubernetes(c.Config, KubernetesOptions{Progress: func(p Progress) {
		if p.Resource == blocks.Pods && p.Done >= 5 {
			once.Do(func() { died = time.Now(); c.StopAPIServer() })
		}
	}})
	must(t, err)
	k.pageSize, k.whole = 5, false
	s, err := k.Read(t.Context())
	must(t, err)
	if took := time.Since(died); took > 15*time.Second {
		t.Errorf("reading ended %v after the server's death", took)
	}
	g, missing := s.Missing(blocks.Pods)
	if !missing || !strings.HasPrefix(g.Reason, "list broke off after ") || len(s.Workloads) < 5 {
		t.Errorf("%d pods, gap %+v", len(s.Workloads), g)
	}
	for _, w := range s.Workloads {
		if !slices.ContainsFunc(whole.Workloads, func(v *blocks.Workload) bool { return v.UID() == w.UID() }) {
			t.Errorf("pod %s was made up", w.FullName())
		}
	}
	for _, g := range s.Gaps {
		if !g.Whole() || strings.Contains(g.Reason, "127.0.0.1:") && strings.Contains(g.Reason, "->") {
			t.Errorf("gap %+v", g)
		}
	}
	if len(s.Gaps) < 5 {
		t.Errorf("gaps %v, want one for every kind that came later", s.Gaps)
	}
	// The server is dead now.
	start := time.Now()
	if s, err := reader(t, c.Config, KubernetesOptions{}).Read(t.Context()); err == nil {
		t.Errorf("a dead server was read: %+v", s.Cluster)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to see that the server is gone", took)
	}
}

func TestCancelled(t *testing.T) {
	c := cluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	k := reader(t, c.Config, KubernetesOptions{Progress: func(p Progress) {
		if p.Resource == blocks.Pods {
			cancel()
		}
	}}, 5)
	if s, err := k.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestUnauthorized(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	cfg := &rest.Config{Host: c.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData}, BearerToken: "forged"}
	if _, err := reader(t, cfg, KubernetesOptions{}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "unauthorized") {
		t.Errorf("got error %v", err)
	}
	cfg.BearerToken = ""
	if _, err := reader(t, cfg, KubernetesOptions{}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "needs the right to get the URL /apis") {
		t.Errorf("anonymous: got error %v", err)
	}
}
