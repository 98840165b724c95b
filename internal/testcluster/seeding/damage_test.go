package seeding

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

func TestObjectsAreEditedPastCalico(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	seedPool(t, s)
	seedNode(t, s)
	seedPod(t, s, Pod{Namespace: "default", Name: "p1", Node: "n1"})
	blocks := testcluster.CRDv1.Resource("ipamblocks")
	block := listOne(t, c, blocks)

	err := c.Edit(ctx, blocks, "", block, func(object map[string]any) {
		object["spec"].(map[string]any)["affinity"] = "host:somebody-else"
	})
	if err != nil {
		t.Fatal(err)
	}
	if state := readIPAM(t, c); len(state.Blocks["somebody-else"]) != 1 || len(state.Borrowed) != 1 {
		t.Errorf("after giving the block away there are blocks %v, borrowed %v", state.Blocks, state.Borrowed)
	}
	affinities := testcluster.CRDv1.Resource("blockaffinities")
	if err := c.Delete(ctx, affinities, "", listOne(t, c, affinities)); err != nil {
		t.Fatal(err)
	}
	err = c.Create(ctx, affinities, map[string]any{
		"metadata": map[string]any{"name": "made-up"},
		"spec": map[string]any{
			"cidr": "10.90.0.0/28", "node": "n9", "state": "pending", "deleted": "false",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if state := readIPAM(t, c); len(state.Affinities) != 1 || len(state.Affinities["n9"]) != 1 {
		t.Errorf("affinities are %v, not one of n9", state.Affinities)
	}
	if err := c.Edit(ctx, blocks, "", "missing", func(map[string]any) {}); err == nil {
		t.Error("editing what does not exist is no error")
	}
}

func TestBackdateMakesOlder(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	if err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	seedPool(t, s)
	seedNode(t, s)
	seedPod(t, s, Pod{Namespace: "default", Name: "p1", Node: "n1"})
	const by = 2 * time.Hour
	start := time.Now()
	if err := c.Backdate(ctx, by); err != nil {
		t.Fatal(err)
	}
	for _, r := range append(testcluster.CRDv1.Resources(), testcluster.Core...) {
		objects, err := c.List(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range objects {
			content, err := json.Marshal(objects[i].Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range timesIn(content) {
				if start.Sub(at) < by-time.Minute {
					t.Errorf("%s %s has a time of %s, which is not two hours ago:\n%s", r.Kind, objects[i].GetName(), at, content)
				}
			}
		}
	}

	if err := c.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	node, err := c.Get(ctx, testcluster.Core[1], "", "n1")
	if err != nil {
		t.Fatal(err)
	}
	conditions := node.Object["status"].(map[string]any)["conditions"].([]any)
	heartbeat, err := time.Parse(time.RFC3339, conditions[0].(map[string]any)["lastHeartbeatTime"].(string))
	if err != nil || start.Sub(heartbeat) > time.Minute {
		t.Errorf("the node's heartbeat is %s (%v), not now", heartbeat, err)
	}
	// Calico's client still understands the rewritten objects.
	if err := s.DeletePod(ctx, "default", "p1", true); err != nil {
		t.Error(err)
	}
}

func TestDumpIsWhatKubectlPrints(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	ctx := t.Context()
	s := newSeeder(t, c)
	if err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	seedPool(t, s)
	seedNode(t, s)
	seedPod(t, s, Pod{Namespace: "kube-system", Name: "b", Node: "n1"})
	seedPod(t, s, Pod{Namespace: "default", Name: "z", Node: "n1"})
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := c.Dump(ctx, dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range append(testcluster.CRDv1.Resources(), testcluster.Core...) {
		content, err := os.ReadFile(filepath.Join(first, r.Resource+".yaml"))
		if err != nil {
			t.Error(err)
			continue
		}
		again, err := os.ReadFile(filepath.Join(second, r.Resource+".yaml"))
		if diff := cmp.Diff(string(content), string(again)); err != nil || diff != "" {
			t.Errorf("the same state gives other %s (%v):\n%s", r.Resource, err, diff)
		}
		var list struct {
			Kind  string
			Items []struct{ APIVersion, Kind string }
		}
		if err := yaml.UnmarshalStrict(content, &map[string]any{}); err != nil {
			t.Errorf("%s: %v", r.Resource, err)
		}
		if err := yaml.Unmarshal(content, &list); err != nil || list.Kind != "List" {
			t.Errorf("%s: kind %q (%v), not List", r.Resource, list.Kind, err)
		}
		objects, err := c.List(ctx, r)
		if err != nil || len(objects) != len(list.Items) {
			t.Errorf("%d of %d %s were dumped (%v)", len(list.Items), len(objects), r.Resource, err)
		}
		for _, item := range list.Items {
			if item.Kind != r.Kind || item.APIVersion != r.GroupVersion().String() {
				t.Errorf("%s has an item %s of %s", r.Resource, item.Kind, item.APIVersion)
			}
		}
	}
	if got := podNames(t, first); !cmp.Equal(got, []string{"default/z", "kube-system/b"}) {
		t.Errorf("pods are %v, not sorted by namespace and name", got)
	}
}

func podNames(t *testing.T, dir string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "pods.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace, Name string
				ManagedFields   []map[string]any
			}
		}
	}
	if err := yaml.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Metadata.Namespace+"/"+item.Metadata.Name)
		for _, fields := range item.Metadata.ManagedFields {
			if fields["time"] == nil || fields["manager"] == nil || fields["fieldsV1"] != nil {
				t.Errorf("pod %s has managed fields %v, not just who wrote when", item.Metadata.Name, fields)
			}
		}
	}
	return names
}

func listOne(t *testing.T, c *testcluster.Cluster, r testcluster.Resource) string {
	t.Helper()
	objects, err := c.List(t.Context(), r)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d %s (%v), not one", len(objects), r.Resource, err)
	}
	return objects[0].GetName()
}

var timePatterns = map[string]*regexp.Regexp{
	time.RFC3339: regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`),
	"2006-01-02 15:04:05.999999999 -0700 MST": regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000 UTC`),
}

// timesIn returns all timestamps in the content.
func timesIn(content []byte) []time.Time {
	var times []time.Time
	for layout, pattern := range timePatterns {
		for _, text := range pattern.FindAllString(string(content), -1) {
			if at, err := time.Parse(layout, text); err == nil {
				times = append(times, at)
			}
		}
	}
	return times
}
