package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// operatorCRDs are CRDs for the kinds of the Prometheus operator and of cert-manager.
// TestChartLint checks their fields.
func operatorCRDs() string {
	var b strings.Builder
	for name, kind := range map[string]string{
		"servicemonitors.monitoring.coreos.com": "ServiceMonitor", "podmonitors.monitoring.coreos.com": "PodMonitor",
		"prometheusrules.monitoring.coreos.com": "PrometheusRule", "issuers.cert-manager.io": "Issuer", "certificates.cert-manager.io": "Certificate",
	} {
		plural, group, _ := strings.Cut(name, ".")
		b.WriteString(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + name + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {plural: ` + plural + `, kind: ` + kind + `}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	}
	return b.String()
}

// checkChartNotes: Helm's notes contain the right command for asking the agents.
func checkChartNotes(t *testing.T, kubeconfig string) {
	t.Helper()
	image := "image: {repository: registry.example.com/calico-audit}\n"
	for values, want := range map[string][]string{
		"agent: {enabled: true, insecure: true, tls: {enabled: false}}": {"calico-audit report --agents --agents-namespace audit\n"},
		"agent: {enabled: true, tls: {secret: mine}}": {
			"kubectl -n audit get secret mine -o jsonpath='{.data.ca\\.crt}' | base64 -d >ca.crt\n",
			"kubectl -n audit create token calico-audit --audience=calico-audit-agent >token\n",
			"calico-audit report --agents --agents-namespace audit --agents-ca-file ca.crt --agents-token-file token\n",
		},
	} {
		out, err := helm(t, image+values, "install", "calico-audit", "--namespace", "audit", "--dry-run=client", "--kubeconfig", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		_, notes, _ := strings.Cut(out, "NOTES:")
		for _, line := range want {
			if !strings.Contains(notes, line) {
				t.Errorf("%s: the notes lack %q:\n%s", values, line, notes)
			}
		}
	}
}

// TestChartOnServer: a real API server accepts everything that the chart renders, also from
// Helm itself. Each component works with exactly the rights that the chart gives it.
func TestChartOnServer(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{WatchCache: true})
	ctx := t.Context()
	const namespace = "audit"
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	apply := func(text string, args ...string) {
		t.Helper()
		args = append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", write(text)}, args...)
		if _, err := c.Kubectl(ctx, args...); err != nil {
			t.Error(err)
		}
	}
	c.Play(t, seeding.StoryDrained)
	apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n" + operatorCRDs())
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		t.Fatal(err)
	}
	checkChartNotes(t, c.KubeconfigPath())
	for name, values := range chartValues {
		t.Run(name, func(*testing.T) { apply(render(t, namespace, values), "--dry-run=server") })
	}
	if t.Failed() {
		return
	}
	if checkChartRelease(t, c); t.Failed() {
		return
	}
	apply(render(t, namespace, everything+"guardRails: {mode: warn}\n"))

	as := func(account string) string {
		t.Helper()
		path, err := c.UserKubeconfig("system:serviceaccount:"+namespace+":"+account, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("exporter", func(t *testing.T) {
		d, err := c.Kube.AppsV1().Deployments(namespace).Get(ctx, "calico-audit-exporter", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		e := clitest.StartExporter(t, as(pod.ServiceAccountName), pod.Containers[0].Args[1:]...)
		clitest.Await(t, "the exporter is ready, with all that it may read", func() bool {
			ready, _ := e.Get("/readyz")
			_, metrics := e.Get("/metrics")
			return ready == 200 && strings.Contains(metrics, "\ncalico_audit_snapshot_complete 1\n")
		})
	})
	t.Run("agent", func(t *testing.T) {
		testenv.Root(t)
		testenv.Program(t, "setpriv", "util-linux")
		d, err := c.Kube.AppsV1().DaemonSets(namespace).Get(ctx, "calico-audit-agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if v := runContainer(t, d.Spec.Template.Spec.Containers[0]); len(v.Namespaces) == 0 || v.Routes == nil {
			t.Errorf("it sees %d network namespaces and %d routes", len(v.Namespaces), len(v.Routes))
		}
	})
	t.Run("helm test", func(t *testing.T) {
		pod := testPod(t, everything)
		got := clitest.Run(t, append(pod.Spec.Containers[0].Args, "--kubeconfig", as(pod.Spec.ServiceAccountName))...)
		if got.Code != exit.CodeOK {
			t.Errorf("it ends with %d: %s", got.Code, got.Err)
		}
	})
	t.Run("report", func(t *testing.T) {
		got := clitest.Run(t, "report", "-o", "json", "--kubeconfig", as("calico-audit"))
		if r := got.Report(t); !r.Complete {
			t.Errorf("the report is not complete: %v", r.Gaps)
		}
	})
	t.Run("repair", func(t *testing.T) {
		job, err := c.Kube.BatchV1().CronJobs(namespace).Get(ctx, "calico-audit-repair", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := job.Spec.JobTemplate.Spec.Template.Spec
		t.Chdir(t.TempDir()) // like the volume, which is the working directory
		got := clitest.Run(t, append(pod.Containers[0].Args, "--kubeconfig", as(pod.ServiceAccountName))...)
		if got.Code != exit.CodeOK || clitest.EmptyBlocks(t, c) != 0 || !strings.Contains(got.Stdout, "Of 2 steps: 2 done.") {
			t.Errorf("it ends with %d, %d empty blocks\n%s%s", got.Code, clitest.EmptyBlocks(t, c), got.Stdout, got.Err)
		}
	})
}
