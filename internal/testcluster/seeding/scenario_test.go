package seeding

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

func TestStory(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3}})
	ctx := t.Context()
	if err := Story(ctx, c); err != nil {
		t.Fatal(err)
	}
	state := readIPAM(t, c)
	if !cmp.Equal(state.Blocks, state.Affinities, comparePrefixes) {
		t.Errorf("blocks %v, but affinities %v", state.Blocks, state.Affinities)
	}
	blocks := map[string]int{}
	addresses := map[string]int{}
	for owner, cidrs := range state.Blocks {
		blocks[owner] = len(cidrs)
	}
	for user, addrs := range state.Allocations {
		addresses[user] = len(addrs)
	}
	if diff := cmp.Diff(map[string]int{"old-1": 2, "old-2": 2}, blocks); diff != "" {
		t.Errorf("blocks by owner (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"old-1": 70, "old-2": 70, "new-1": 2, "new-2": 2}, addresses); diff != "" {
		t.Errorf("addresses by user (-want +got):\n%s", diff)
	}
	borrowers := map[string]int{}
	for _, b := range state.Borrowed {
		borrowers[b.User]++
	}
	if diff := cmp.Diff(map[string]int{"new-1": 2, "new-2": 2}, borrowers); diff != "" {
		t.Errorf("borrowed addresses by user (-want +got):\n%s", diff)
	}
	if state.Handles != 144 {
		t.Errorf("there are %d handles, not 144", state.Handles)
	}
	calicoctlCheck(t, c)

	t.Run("is the same in the native group", func(t *testing.T) {
		if err := testcluster.CopyToNative(ctx, c, c); err != nil {
			t.Fatal(err)
		}
		compareGroups(t, c)
	})
	t.Run("leaves empty blocks when it is drained", func(t *testing.T) {
		if err := drainStory(ctx, c); err != nil {
			t.Fatal(err)
		}
		drained := readIPAM(t, c)
		if len(drained.Empty) != 2 || !cmp.Equal(drained.Blocks, state.Blocks, comparePrefixes) {
			t.Errorf("empty blocks %v of %v, not one of each old node's", drained.Empty, drained.Blocks)
		}
		if diff := cmp.Diff(state.Borrowed, drained.Borrowed, compareAddrs); diff != "" {
			t.Errorf("borrowed addresses changed (-before +after):\n%s", diff)
		}
		calicoctlCheck(t, c)
	})
	// The copied objects have not changed, so they are still the story.
	t.Run("can be moved to the native group", func(t *testing.T) {
		if err := testcluster.MoveToNative(ctx, c); err != nil {
			t.Fatal(err)
		}
		served, err := c.Kube.Discovery().ServerResourcesForGroupVersion(string(testcluster.CRDv1))
		if !apierrors.IsNotFound(err) {
			t.Errorf("crd.projectcalico.org/v1 still serves %v (%v)", served, err)
		}
		moved, err := c.ReadIPAM(ctx, testcluster.NativeV3)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkStory(moved); err != nil {
			t.Error(err)
		}
	})
}

func TestHealthy(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	if err := Healthy(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	state := readIPAM(t, c)
	if len(state.Blocks) != 4 || len(state.Borrowed) != 0 || len(state.Empty) != 0 {
		t.Errorf("blocks %v, borrowed %v, empty %v: not one block in use for each of four nodes",
			state.Blocks, state.Borrowed, state.Empty)
	}
	calicoctlCheck(t, c)
}

func TestDualStack(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	if err := DualStack(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	state := readIPAM(t, c)
	for node, addrs := range state.Allocations {
		if node == "" {
			continue
		}
		var v4, v6 int
		for _, addr := range addrs {
			if addr.Is4() {
				v4++
			} else {
				v6++
			}
		}
		if v4 != 15 || v6 != 15 {
			t.Errorf("node %s uses %d IPv4 and %d IPv6 addresses, not 14 pods' and a tunnel's", node, v4, v6)
		}
	}
	if n := len(state.Blocks["virtual:load-balancer"]); n != 1 || len(state.Allocations[""]) != 2 {
		t.Errorf("%d blocks with %v for services, not one with two addresses", n, state.Allocations[""])
	}
}

func TestCopyToAnotherCluster(t *testing.T) {
	from := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, from)
	if err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	seedPool(t, s)
	seedNode(t, s)
	if err := s.Namespace(ctx, "shop", map[string]string{"a": "b"}, nil); err != nil {
		t.Fatal(err)
	}
	seedPod(t, s, Pod{Namespace: "shop", Name: "p1", Node: "n1"})
	if err := from.Backdate(ctx, 3600e9); err != nil {
		t.Fatal(err)
	}
	to := testcluster.Start(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
	if err := testcluster.CopyToNative(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	for _, r := range testcluster.Core {
		compare(t, from, r, to, r)
	}
	native := testcluster.NativeV3.Resources()
	for i, r := range testcluster.CRDv1.Resources() {
		compare(t, from, r, to, native[i])
	}
}

func TestBulk(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	if err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.RawPool(ctx, "pods", map[string]any{"cidr": "10.90.0.0/22", "blockSize": int64(28)}); err != nil {
		t.Fatal(err)
	}
	// 40 nodes of 20 pods need 80 blocks of 16, but there are only 64.
	if err := s.Bulk(ctx, Bulk{Nodes: 40, PodsPerNode: 20}); err != nil {
		t.Fatal(err)
	}
	state := readIPAM(t, c)
	total := 0
	for node, addrs := range state.Allocations {
		if len(addrs) != 20 {
			t.Errorf("node %s uses %d addresses, not 20", node, len(addrs))
		}
		total += len(addrs)
	}
	if total != 800 || state.Handles != 800 || len(state.Borrowed) == 0 {
		t.Errorf("%d addresses, %d handles, %d borrowed: not 800, 800, some", total, state.Handles, len(state.Borrowed))
	}
	if !cmp.Equal(state.Blocks, state.Affinities, comparePrefixes) {
		t.Errorf("blocks %v, but affinities %v", state.Blocks, state.Affinities)
	}
	calicoctlCheck(t, c)
	// Calico's client can continue with objects that it did not write itself.
	pod := Bulk{Prefix: "bulk", Namespaces: 10, PodsPerNode: 20}.PodAt(39, 19)
	if err := s.DeletePod(ctx, pod.Namespace, pod.Name, true); err != nil {
		t.Error(err)
	}
	seedPod(t, s, Pod{Namespace: "default", Name: "later", Node: "bulk-00039"})
	if state := readIPAM(t, c); state.Handles != 800 {
		t.Errorf("%d handles after one pod went and one came, not 800", state.Handles)
	}
}

// calicoctlCheck runs calicoctl ipam check, which must find no problems.
func calicoctlCheck(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	out, err := c.Calicoctl(t.Context(), "ipam", "check")
	if err != nil || !strings.Contains(out, "Check complete; found 0 problems") {
		t.Errorf("calicoctl ipam check (%v) says:\n%s", err, out)
	}
}

// compareGroups fails the test unless a cluster has the same objects in both groups.
func compareGroups(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	native := testcluster.NativeV3.Resources()
	for i, r := range testcluster.CRDv1.Resources() {
		compare(t, c, r, c, native[i])
	}
}

// compare fails the test unless two clusters, or groups, have the same objects.
func compare(t *testing.T, from *testcluster.Cluster, fromR testcluster.Resource, to *testcluster.Cluster, toR testcluster.Resource) {
	t.Helper()
	want, err := comparableObjects(t.Context(), from, fromR)
	if err != nil {
		t.Fatal(err)
	}
	got, err := comparableObjects(t.Context(), to, toR)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s of %s (-original +copy):\n%s", toR.Resource, toR.Group, diff)
	}
}

// comparableObjects returns the comparable parts of a kind's objects.
func comparableObjects(ctx context.Context, c *testcluster.Cluster, r testcluster.Resource) (map[string]any, error) {
	objects, err := c.List(ctx, r)
	out := map[string]any{}
	for i := range objects {
		o := &objects[i]
		if spec, ok := o.Object["spec"].(map[string]any); ok && r.Kind == "BlockAffinity" {
			spec["deleted"] = fmt.Sprint(spec["deleted"])
		}
		// Only the native CRDs have these defaults.
		switch spec, _ := o.Object["spec"].(map[string]any); r.Kind {
		case "IPAMConfiguration":
			delete(spec, "maxBlocksPerHost")
		case "FelixConfiguration":
			delete(spec, "nftablesMode")
		case "KubeControllersConfiguration":
			delete(o.Object, "status")
		}
		var fields []string
		for _, f := range o.GetManagedFields() {
			fields = append(fields, fmt.Sprint(f.Manager, " ", f.Operation, " ", f.Subresource, " ", f.Time))
		}
		m := map[string]any{
			"labels": o.GetLabels(), "created": o.GetCreationTimestamp().String(), "written": fields,
			"spec": o.Object["spec"], "status": o.Object["status"],
		}
		if o.GetNamespace() == "" && isSystemNamespace(r, o.GetName()) {
			delete(m, "created")
			delete(m, "written")
		}
		out[o.GetNamespace()+"/"+o.GetName()] = m
	}
	return out, err
}

func isSystemNamespace(r testcluster.Resource, name string) bool {
	return r.Kind == "Namespace" && (name == "default" || strings.HasPrefix(name, "kube-"))
}

// compareAddrs lets go-cmp compare addresses.
var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
