package examples_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// agentTLS returns the manifests of the exporter and the agents with mutual authentication.
func agentTLS(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return exampleManifests(t, []string{"exporter", "agent"},
		[]string{"agent-tls-cert-manager", "exporter-agents", "agent-prometheus-operator", "agent-tls-prometheus-operator"}, nil)
}

// TestAgentTLSManifests: agents find their certificate, the exporter finds its CA and
// token, and each has exactly the rights that it needs.
func TestAgentTLSManifests(t *testing.T) {
	objects := agentTLS(t)
	ds := the[appsv1.DaemonSet](t, objects, "DaemonSet", "calico-audit-agent")
	checkAgentProbes(t, ds, "https")
	pod := ds.Spec.Template.Spec
	c := pod.Containers[0]
	checkFlags(t, "agent", c.Args)
	if !slices.Contains(c.Args, "--authorize-callers") || !*pod.AutomountServiceAccountToken {
		t.Errorf("it cannot tell who calls: %q, token %v", c.Args, *pod.AutomountServiceAccountToken)
	}
	mounted := func(p corev1.PodSpec, c corev1.Container, file string) (*corev1.Volume, string) {
		for _, m := range c.VolumeMounts {
			if path.Dir(file) != m.MountPath {
				continue
			}
			if !m.ReadOnly {
				t.Errorf("%s may be written to", m.MountPath)
			}
			for i := range p.Volumes {
				if p.Volumes[i].Name == m.Name {
					return &p.Volumes[i], path.Base(file)
				}
			}
		}
		t.Fatalf("%s is not mounted", file)
		return nil, ""
	}
	flag := func(c corev1.Container, name string) string {
		for _, a := range c.Args {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				return v
			}
		}
		t.Fatalf("there is no --%s in %q", name, c.Args)
		return ""
	}
	volume, key := mounted(pod, c, flag(c, "web.config.file"))
	var web struct {
		TLS struct {
			Cert string `json:"cert_file"`
			Key  string `json:"key_file"`
		} `json:"tls_server_config"`
	}
	config := the[corev1.ConfigMap](t, objects, "ConfigMap", volume.ConfigMap.Name)
	if err := yaml.UnmarshalStrict([]byte(config.Data[key]), &web); err != nil {
		t.Fatal(err)
	}
	const secret = "calico-audit-agent-tls"
	for file, want := range map[string]string{web.TLS.Cert: corev1.TLSCertKey, web.TLS.Key: corev1.TLSPrivateKeyKey} {
		if volume, key := mounted(pod, c, file); volume.Secret == nil || volume.Secret.SecretName != secret || key != want {
			t.Errorf("%s is of %+v, want %s of %s", file, volume, want, secret)
		}
	}
	cert := one(t, objects, "Certificate", "calico-audit-agent")
	if name, _, _ := unstructured.NestedString(cert, "spec", "secretName"); name != secret {
		t.Errorf("cert-manager writes %s", name)
	}
	if names, _, _ := unstructured.NestedStringSlice(cert, "spec", "dnsNames"); !slices.Equal(names, []string{agents.ServerName}) {
		t.Errorf("the certificate is for %q", names)
	}

	exporter := the[appsv1.Deployment](t, objects, "Deployment", "calico-audit-exporter").Spec.Template.Spec
	e := exporter.Containers[0]
	checkFlags(t, "exporter", e.Args)
	if !slices.Contains(e.Args, "--agents") {
		t.Errorf("the exporter's arguments are %q", e.Args)
	}
	trusted, _ := mounted(exporter, e, flag(e, "agents-ca-file"))
	token, name := mounted(exporter, e, flag(e, "agents-token-file"))
	sources := trusted.Projected.Sources
	if ca := sources[0].Secret; ca.Name != secret || len(ca.Items) != 1 || ca.Items[0].Key != "ca.crt" || ca.Items[0].Path != path.Base(flag(e, "agents-ca-file")) {
		t.Errorf("of the agents' Secret the exporter sees %+v: the CA's certificate alone is its business", ca)
	}
	if p := token.Projected.Sources[1].ServiceAccountToken; p.Path != name || p.Audience != agents.ServerName {
		t.Errorf("its token is %+v", p)
	}

	monitor := the[monitoringv1.PodMonitor](t, objects, "PodMonitor", "calico-audit-agent")
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(ds.Spec.Template.Labels)) || monitor.Namespace != ds.Namespace {
		t.Errorf("the PodMonitor looks for %v in %s: %v", monitor.Spec.Selector, monitor.Namespace, err)
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	credentials := the[corev1.Secret](t, objects, "Secret", endpoint.Authorization.Credentials.Name)
	if *endpoint.Port != c.Ports[0].Name || *endpoint.TLSConfig.ServerName != agents.ServerName || endpoint.TLSConfig.CA.Secret.Name != secret ||
		endpoint.Scheme == nil || !strings.EqualFold(string(*endpoint.Scheme), "https") ||
		credentials.Type != corev1.SecretTypeServiceAccountToken || credentials.Annotations[corev1.ServiceAccountNameKey] != "calico-audit-agent-scraper" {
		t.Errorf("the PodMonitor asks %+v, as %+v", endpoint, credentials)
	}

	roles := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "ClusterRoleBinding" {
			b := decode[rbacv1.ClusterRoleBinding](t, o)
			roles[b.Subjects[0].Name] += b.RoleRef.Name + " "
		}
	}
	for account, want := range map[string]string{
		"calico-audit-agent": "system:auth-delegator ", "calico-audit-exporter": "calico-audit-exporter calico-audit-host-views ", "calico-audit-agent-scraper": "calico-audit-agent-scraper ",
	} {
		got := strings.Fields(roles[account])
		slices.Sort(got)
		if strings.Join(got, " ")+" " != want {
			t.Errorf("%s has %q, want %q", account, got, want)
		}
	}
	rule := the[rbacv1.ClusterRole](t, objects, "ClusterRole", "calico-audit-host-views").Rules
	if len(rule) != 1 || !slices.Equal(rule[0].NonResourceURLs, []string{agents.Path}) || !slices.Equal(rule[0].Verbs, []string{"get"}) {
		t.Errorf("the right to ask agents is %+v", rule)
	}
}

// one returns the single object with a kind and name, undecoded.
func one(t *testing.T, objects []*unstructured.Unstructured, kind, name string) map[string]any {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o.Object
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// TestAgentTLSManifestsOnServer: a real API server accepts the manifests.
func TestAgentTLSManifestsOnServer(t *testing.T) {
	client, err := dynamic.NewForConfig(testcluster.Shared(t, testcluster.Options{}).Config)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, o := range agentTLS(t) {
		r, known := manifestResources[o.GetKind()]
		switch o.GetKind() {
		case "DaemonSet":
			r, known = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, true
		case "ConfigMap", "Secret":
			r, known = schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(o.GetKind()) + "s"}, true
		}
		if !known {
			continue // kinds that this server does not have
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		force := true
		_, err = client.Resource(r).Namespace(o.GetNamespace()).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict, FieldManager: "test", Force: &force,
		})
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		tried++
	}
	if tried < 15 {
		t.Errorf("only %d objects were tried", tried)
	}
}
