package examples_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// checkChartRelease installs the chart with Helm on an API server, upgrades it to other
// values, rolls it back and uninstalls it. After each step exactly the rendered objects
// exist, apart from the journals.
func checkChartRelease(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	const namespace = "released"
	journal := "PersistentVolumeClaim " + namespace + "/calico-audit-repair-journal"
	run := func(values string, args ...string) string {
		t.Helper()
		args = append(args, "--namespace", namespace, "--kubeconfig", c.KubeconfigPath())
		out, err := helm(t, values, args...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	// live returns the objects of the release, by their label.
	live := func() map[string]map[string]any {
		t.Helper()
		var kinds []string
		for _, values := range chartValues {
			for _, o := range chart(t, namespace, values) {
				kinds = append(kinds, o.GetKind())
			}
		}
		slices.Sort(kinds)
		out, err := c.Kubectl(t.Context(), "get", strings.Join(slices.Compact(kinds), ","), "--all-namespaces", "-l", "app.kubernetes.io/instance=calico-audit", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		list := &unstructured.UnstructuredList{}
		if err := list.UnmarshalJSON([]byte(out)); err != nil {
			t.Fatal(err)
		}
		found := map[string]map[string]any{}
		for _, o := range list.Items {
			found[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
		return found
	}
	holds := func(values string, beside ...string) {
		t.Helper()
		found, want := live(), beside
		for key, o := range byName(t, chart(t, namespace, values)) {
			want = append(want, key)
			if path := differs("", o, found[key]); path != "" && found[key] != nil {
				t.Errorf("%s is not as the chart has it, at %s", key, path)
			}
		}
		var got []string
		for key := range found {
			got = append(got, key)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Fatalf("objects (-chart +API server):\n%s", diff)
		}
	}
	uid := func() any {
		t.Helper()
		id, _, _ := unstructured.NestedString(live()[journal], "metadata", "uid")
		if id == "" {
			t.Fatal("there is no claim for the journals")
		}
		return id
	}
	// The spec of a claim is immutable.
	least, other := chartValues["image alone"], chartValues["each other way"]+"repair: {enabled: true, suspend: true}\n"

	run(everything, "install", "calico-audit", "--create-namespace")
	holds(everything)
	first := uid()
	run(least, "upgrade", "calico-audit")
	holds(least, journal)
	run(everything, "upgrade", "calico-audit")
	holds(everything)
	run(other, "upgrade", "calico-audit")
	holds(other)
	run("", "rollback", "calico-audit", "3")
	holds(everything)
	if said := run("", "uninstall", "calico-audit"); !strings.Contains(said, "[PersistentVolumeClaim] calico-audit-repair-journal") {
		t.Errorf("it does not say what it keeps:\n%s", said)
	}
	if left := live(); len(left) != 1 || uid() != first {
		t.Errorf("left are %v", left)
	}
	run(everything, "install", "calico-audit")
	holds(everything)
	if uid() != first {
		t.Error("the journals are not those of the release before")
	}
	run("", "uninstall", "calico-audit")
}

// differs returns the path of a wanted value that an object lacks or has differently; "" if
// it has all. Additions by the API server do not count, and an empty list or map equals a
// missing one.
func differs(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			if at := differs(path+"."+key, value, got[key]); at != "" {
				return at
			}
		}
		return ""
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return path
		}
		for i := range want {
			if at := differs(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); at != "" {
				return at
			}
		}
		return ""
	case nil:
		return ""
	}
	if want != "" && fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("%s: %v, not %v", path, got, want)
	}
	return ""
}
