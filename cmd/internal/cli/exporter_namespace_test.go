package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// advisedKustomizations are the two kustomizations in the comment of exporter-events,
// the inner and the outer one.
func advisedKustomizations(t *testing.T, dir string) (inner, outer string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "exporter-events", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	inside := false
	for line := range strings.Lines(string(raw)) {
		text, ok := strings.CutPrefix(line, "#   ")
		if ok && !inside {
			parts = append(parts, "")
		}
		if inside = ok; ok {
			parts[len(parts)-1] += text
		}
	}
	if len(parts) != 2 {
		t.Fatalf("the comment has %d kustomizations", len(parts))
	}
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "path/to/examples/kubernetes/", "../")
	}
	return parts[0], parts[1]
}

// TestExporterInAnotherNamespace: a namespace that an own kustomization sets reaches
// everything of the exporter and its components. That for Events, which needs
// "default" besides, refuses it, and is added as its comment advises.
func TestExporterInAnotherNamespace(t *testing.T) {
	dir := copyOfExamples(t)
	inner, outer := advisedKustomizations(t, dir)
	for name, text := range map[string]string{"exporter-here": inner, "top": outer} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var set struct{ Namespace string }
	if err := yaml.Unmarshal([]byte(inner), &set); err != nil || set.Namespace == "" || set.Namespace == "kube-system" {
		t.Fatalf("the inner kustomization sets the namespace %q: %v", set.Namespace, err)
	}
	for _, x := range []struct {
		dir        string
		components []string
		namespaced int // objects in a namespace
	}{
		{"exporter-here", exporterComponents[:2], 7},
		{"top", exporterComponents, 11},
	} {
		objects := kustomize(t, filepath.Join(dir, x.dir))
		namespaced := 0
		for _, o := range objects {
			where := o.GetNamespace()
			if where != "" {
				namespaced++
			}
			if where != "" && where != set.Namespace && (where != "default" || !strings.HasSuffix(o.GetName(), "-events")) {
				t.Errorf("%s: %s %s lies in %s", x.dir, o.GetKind(), o.GetName(), where)
			}
		}
		if namespaced != x.namespaced {
			t.Errorf("%s: %d objects lie in a namespace, not %d", x.dir, namespaced, x.namespaced)
		}
		checkBindings(t, objects, set.Namespace, "calico-audit-exporter", x.components)
		checkMonitor(t, objects, the[corev1.Service](t, objects, "Service", "calico-audit-exporter"))
	}
}

// TestExporterEventsRefuseNamespace: what the comment warns of.
func TestExporterEventsRefuseNamespace(t *testing.T) {
	dir := copyOfExamples(t)
	top := filepath.Join(dir, "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "namespace: calico-audit\nresources: [../exporter]\ncomponents: [../exporter-events]\n"
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), top); err == nil || !strings.Contains(err.Error(), "ID conflict") {
		t.Errorf("a namespace over all of it: %v", err)
	}
}
