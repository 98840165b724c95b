package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// exporterComponents are the components for the exporter's own Deployment.
var exporterComponents = []string{"exporter-prometheus-operator", "exporter-networkpolicy"}

// exampleManifests builds a kustomization of the examples, or of the given files, with
// components.
func exampleManifests(t *testing.T, resources, components []string, files map[string]string) []*unstructured.Unstructured {
	t.Helper()
	top := filepath.Join(copyOfExamples(t), "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	list := map[string][]string{"resources": {}, "components": {}}
	for _, r := range resources {
		list["resources"] = append(list["resources"], "../"+r)
	}
	for _, c := range components {
		list["components"] = append(list["components"], "../"+c)
	}
	for name, text := range files {
		list["resources"] = append(list["resources"], name)
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomize(t, top)
}

// copyOfExamples copies the example manifests and returns their directory.
func copyOfExamples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", "kubernetes"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// calicoManifest returns the installation manifest of the tests' Calico release.
func calicoManifest(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/projectcalico/calico").Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "manifests", "calico.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// decode decodes an object strictly.
func decode[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	into := new(T)
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return into
}

// the returns the single object with a kind and name.
func the[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	var found []*T
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			found = append(found, decode[T](t, o))
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d of %s %s", len(found), kind, name)
	}
	return found[0]
}

// checkExporterContainer checks the properties of the exporter's container.
func checkExporterContainer(t *testing.T, pod *corev1.PodSpec, c *corev1.Container, port string) {
	t.Helper()
	checkFlags(t, "exporter", c.Args)
	s := c.SecurityContext
	if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("rights of the container: %+v", s)
	}
	nonRoot, profile := s.RunAsNonRoot, s.SeccompProfile
	if p := pod.SecurityContext; nonRoot == nil {
		nonRoot, profile = p.RunAsNonRoot, p.SeccompProfile
	}
	if !*nonRoot || profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("it may run as root (%v), or under the profile %v", *nonRoot, profile)
	}
	if pod.HostNetwork || pod.HostPID || len(c.VolumeMounts) > 0 {
		t.Errorf("it is let near the host, or mounts %v", c.VolumeMounts)
	}
	if c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources: %+v", c.Resources)
	}
	if len(c.Ports) != 1 || c.Ports[0].Name != port {
		t.Fatalf("ports: %+v", c.Ports)
	}
	if listen, want := flagDefault(t, "exporter", "listen"), fmt.Sprintf("[:%d]", c.Ports[0].ContainerPort); listen != want {
		t.Errorf("it listens on %s by default, and the port is %s", listen, want)
	}
	if p := c.LivenessProbe; p == nil || p.HTTPGet.Path != "/healthz" || p.HTTPGet.Port.String() != port {
		t.Errorf("liveness: %+v", p)
	}
	if c.Image != "registry.example.com/calico-audit:v1" {
		t.Errorf("the image is %s", c.Image)
	}
}

// TestExporterManifests: the exporter's Deployment has the documented properties without
// components, with each component and with agents, and its objects refer to each other correctly.
func TestExporterManifests(t *testing.T) {
	for _, components := range [][]string{nil, exporterComponents[:1], exporterComponents[1:], exporterComponents} {
		objects := exampleManifests(t, []string{"exporter", "agent"}, components, nil)
		d := the[appsv1.Deployment](t, objects, "Deployment", "calico-audit-exporter")
		pod := &d.Spec.Template.Spec
		c := &pod.Containers[0]
		checkExporterContainer(t, pod, c, "metrics")
		if p := c.ReadinessProbe; p == nil || p.HTTPGet.Path != "/readyz" || p.HTTPGet.Port.String() != "metrics" {
			t.Errorf("readiness: %+v", p)
		}
		if s := d.Spec.Strategy.RollingUpdate; s.MaxUnavailable.IntValue() != 0 || s.MaxSurge.IntValue() < 1 {
			t.Errorf("a rollout is %+v: a pod ends before its successor, which may get no address, is ready", s)
		}
		podLabels := labels.Set(d.Spec.Template.Labels)
		budget := the[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget", "calico-audit-exporter")
		if most := budget.Spec.MaxUnavailable; most == nil || most.IntValue() >= int(*d.Spec.Replicas) {
			t.Errorf("of %d replicas %v may be away at once", *d.Spec.Replicas, most)
		}
		account := the[corev1.ServiceAccount](t, objects, "ServiceAccount", pod.ServiceAccountName)
		checkBindings(t, objects, account.Namespace, account.Name)
		service := the[corev1.Service](t, objects, "Service", "calico-audit-exporter")
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(podLabels) || service.Spec.Ports[0].TargetPort.String() != "metrics" {
			t.Errorf("the Service looks for %v, port %s", service.Spec.Selector, service.Spec.Ports[0].TargetPort.String())
		}
		for _, o := range objects {
			if o.GetNamespace() != "" && o.GetNamespace() != "kube-system" {
				t.Errorf("%s %s lies in %s", o.GetKind(), o.GetName(), o.GetNamespace())
			}
		}
		if slices.Contains(components, "exporter-prometheus-operator") {
			checkMonitor(t, objects, service)
		}
		if slices.Contains(components, "exporter-networkpolicy") {
			p := the[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "calico-audit-exporter")
			selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
			if err != nil || !selector.Matches(podLabels) || p.Spec.Ingress[0].Ports[0].Port.String() != "metrics" {
				t.Errorf("the NetworkPolicy is for %v: %v", p.Spec, err)
			}
			from := p.Spec.Ingress[0].From
			if len(p.Spec.Ingress) != 1 || len(from) != 1 || from[0].NamespaceSelector == nil || !cmp.Equal(from[0].NamespaceSelector.MatchLabels, map[string]string{corev1.LabelMetadataName: "monitoring"}) {
				t.Errorf("the NetworkPolicy lets in %+v, and not Prometheus' namespace alone", p.Spec.Ingress)
			}
			agents := the[appsv1.DaemonSet](t, objects, "DaemonSet", "calico-audit-agent")
			if selector.Matches(labels.Set(agents.Spec.Template.Labels)) {
				t.Error("the NetworkPolicy is for the agents, too")
			}
		}
	}
}

// checkBindings: the bindings give the exporter's rights to its service account, and to no
// other.
func checkBindings(t *testing.T, objects []*unstructured.Unstructured, namespace, account string) {
	t.Helper()
	bound := []string{}
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") || !strings.HasPrefix(o.GetName(), "calico-audit-exporter") {
			continue
		}
		b := decode[rbacv1.ClusterRoleBinding](t, o)
		if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}}, b.Subjects); diff != "" {
			t.Errorf("%s %s: %s", o.GetKind(), o.GetName(), diff)
		}
		exists := slices.ContainsFunc(objects, func(r *unstructured.Unstructured) bool {
			return r.GetKind() == b.RoleRef.Kind && r.GetName() == b.RoleRef.Name && (r.GetNamespace() == "" || r.GetNamespace() == o.GetNamespace())
		})
		if !exists {
			t.Errorf("%s %s gives a role that does not exist: %v", o.GetKind(), o.GetName(), b.RoleRef)
		}
		bound = append(bound, o.GetNamespace()+"/"+b.RoleRef.Name)
	}
	if diff := cmp.Diff([]string{"/calico-audit-exporter"}, bound); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
}

// checkMonitor: the Prometheus operator would scrape the Service and load the rules, and
// knows all fields.
func checkMonitor(t *testing.T, objects []*unstructured.Unstructured, service *corev1.Service) {
	t.Helper()
	m := the[monitoringv1.ServiceMonitor](t, objects, "ServiceMonitor", "calico-audit-exporter")
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(service.Labels)) || m.Namespace != service.Namespace {
		t.Errorf("the ServiceMonitor looks for %v in %s: %v", m.Spec.Selector, m.Namespace, err)
	}
	if len(m.Spec.Endpoints) != 1 || m.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("the ServiceMonitor asks %+v", m.Spec.Endpoints)
	}
	r := the[monitoringv1.PrometheusRule](t, objects, "PrometheusRule", "calico-audit")
	if r.Namespace != service.Namespace || len(r.Spec.Groups) == 0 || len(r.Spec.Groups[0].Rules) < 20 {
		t.Errorf("the PrometheusRule holds %d groups", len(r.Spec.Groups))
	}
}

// TestExporterSidecar: the exporter can be added to Calico's own manifest as a second
// container of calico-kube-controllers, which is otherwise unchanged.
func TestExporterSidecar(t *testing.T) {
	files := map[string]string{"calico.yaml": calicoManifest(t)}
	before := exampleManifests(t, nil, nil, files)
	objects := exampleManifests(t, nil, []string{"exporter-sidecar", "exporter-prometheus-operator"}, files)
	const name = "calico-kube-controllers"
	was := the[appsv1.Deployment](t, before, "Deployment", name)
	d := the[appsv1.Deployment](t, objects, "Deployment", name)
	pod := &d.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "calico-audit" })
	if i < 0 || len(pod.Containers) != 2 {
		t.Fatalf("there are %d containers", len(pod.Containers))
	}
	c := pod.Containers[i]
	checkExporterContainer(t, pod, &c, "audit-metrics")
	if c.ReadinessProbe != nil {
		t.Error("calico-kube-controllers would be unready because the audit is")
	}
	checkBindings(t, objects, d.Namespace, pod.ServiceAccountName)
	service := the[corev1.Service](t, objects, "Service", "calico-audit-exporter")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) || service.Namespace != d.Namespace ||
		service.Spec.Ports[0].TargetPort.String() != "audit-metrics" {
		t.Errorf("the Service looks for %v in %s", service.Spec.Selector, service.Namespace)
	}
	checkMonitor(t, objects, service)
	pod.Containers = slices.Delete(pod.Containers, i, i+1)
	if diff := cmp.Diff(was, d); diff != "" {
		t.Errorf("the rest of the Deployment (-before +after):\n%s", diff)
	}
	if added := len(objects) - len(before); added != 5 {
		t.Errorf("%d objects are new", added)
	}
}

// manifestResources are the resources of the kinds in the manifests.
var manifestResources = map[string]schema.GroupVersionResource{
	"ServiceAccount":      {Version: "v1", Resource: "serviceaccounts"},
	"Service":             {Version: "v1", Resource: "services"},
	"Deployment":          {Group: appsv1.GroupName, Version: "v1", Resource: "deployments"},
	"PodDisruptionBudget": {Group: policyv1.GroupName, Version: "v1", Resource: "poddisruptionbudgets"},
	"NetworkPolicy":       {Group: networkingv1.GroupName, Version: "v1", Resource: "networkpolicies"},
	"ClusterRole":         {Group: rbacv1.GroupName, Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":  {Group: rbacv1.GroupName, Version: "v1", Resource: "clusterrolebindings"},
}

// TestExporterManifestsOnServer: a real API server accepts the manifests.
func TestExporterManifestsOnServer(t *testing.T) {
	cluster := testcluster.Shared(t, testcluster.Options{})
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	sidecar := exampleManifests(t, nil, []string{"exporter-sidecar"}, map[string]string{"calico.yaml": calicoManifest(t)})
	own := slices.DeleteFunc(sidecar, func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "Deployment" && !strings.HasPrefix(o.GetName(), "calico-audit")
	})
	tried := map[string]int{}
	for _, o := range slices.Concat(exampleManifests(t, []string{"exporter"}, exporterComponents, nil), own) {
		if o.GroupVersionKind().Group == "monitoring.coreos.com" {
			continue // kinds that this server does not have
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		// Apply instead of create, because an earlier test may have left objects with these
		// names.
		force := true
		_, err = client.Resource(manifestResources[o.GetKind()]).Namespace(o.GetNamespace()).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict, FieldManager: "test", Force: &force,
		})
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		tried[o.GetKind()]++
	}
	want := map[string]int{"ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "Deployment": 2, "Service": 2, "NetworkPolicy": 1, "PodDisruptionBudget": 1}
	if diff := cmp.Diff(want, tried); diff != "" {
		t.Errorf("objects that were tried (-want +got):\n%s", diff)
	}
}
