package examples_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestExporterInAnotherNamespace: a kustomization's namespace applies to all objects of the
// exporter and its components.
func TestExporterInAnotherNamespace(t *testing.T) {
	const namespace = "monitoring"
	dir := copyOfExamples(t)
	top := filepath.Join(dir, "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "namespace: " + namespace + "\nresources: [../exporter]\ncomponents: [../exporter-prometheus-operator, ../exporter-networkpolicy]\n"
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := kustomize(t, top)
	namespaced := 0
	for _, o := range objects {
		switch o.GetNamespace() {
		case namespace:
			namespaced++
		case "":
		default:
			t.Errorf("%s %s lies in %s", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
	if namespaced != 7 {
		t.Errorf("%d objects lie in a namespace, not 7", namespaced)
	}
	checkBindings(t, objects, namespace, "calico-audit-exporter")
	checkMonitor(t, objects, the[corev1.Service](t, objects, "Service", "calico-audit-exporter"))
}
