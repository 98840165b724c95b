package cli_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// exporterAccount is the service account of the examples, as RBAC names it.
const exporterAccount = "system:serviceaccount:kube-system:calico-audit-exporter"

// grantExporter gives the service account of the examples the rights that ship, and
// returns a kubeconfig of its own. They are taken away with the test.
func grantExporter(t *testing.T, c *testcluster.Cluster) string {
	t.Helper()
	ctx, rbac := t.Context(), c.Kube.RbacV1()
	must := func(err error) {
		t.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, o := range exampleManifests(t, []string{"exporter"}, []string{"exporter-events"}, nil) {
		var err error
		switch ns, name := o.GetNamespace(), o.GetName(); o.GetKind() {
		case "ClusterRole":
			_, err = rbac.ClusterRoles().Create(ctx, decode[rbacv1.ClusterRole](t, o), metav1.CreateOptions{})
			t.Cleanup(func() { must(rbac.ClusterRoles().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})) })
		case "ClusterRoleBinding":
			_, err = rbac.ClusterRoleBindings().Create(ctx, decode[rbacv1.ClusterRoleBinding](t, o), metav1.CreateOptions{})
		case "Role":
			_, err = rbac.Roles(ns).Create(ctx, decode[rbacv1.Role](t, o), metav1.CreateOptions{})
		case "RoleBinding":
			_, err = rbac.RoleBindings(ns).Create(ctx, decode[rbacv1.RoleBinding](t, o), metav1.CreateOptions{})
		}
		must(err)
	}
	kubeconfig, err := c.UserKubeconfig(exporterAccount)
	must(err)
	return kubeconfig
}

// TestExporterEvents: on the incident's cluster and with the rights that ship, kubectl
// describe node shows what is wrong with a node, written by one of two replicas.
func TestExporterEvents(t *testing.T) {
	c := play(t, seeding.Story)
	for _, ns := range []string{"default", "kube-system"} {
		if err := c.Kube.CoreV1().Events(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := grantExporter(t, c)
	first := exporter(t, kubeconfig, "--events", "--events-namespace", "kube-system")
	first.ready()
	const writer = "calico_audit_events_writer"
	await(t, "the first replica writes", func() bool { return first.scrape()[writer] == 1 })
	second := exporter(t, kubeconfig, "--events", "--events-namespace", "kube-system")
	second.ready()
	first.restarted = true // what the other one runs is none of its leavings

	describe := func(args ...string) string {
		text, err := c.Kubectl(t.Context(), append([]string{"describe"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		_, events, _ := strings.Cut(text, "\nEvents:")
		return events
	}
	onNode := regexp.MustCompile(`(?m)^ +Warning +NodeNoBlock +\S+ +calico-audit +node new-1 has no IPv4 block and borrows 2 addresses, .* \[next: .*\]$`)
	await(t, "kubectl describe node shows that the node has no block", func() bool { return onNode.MatchString(describe("node", "new-1")) })
	onLease := regexp.MustCompile(`(?m)^ +Warning +DiagnosisShortage +\S+ +calico-audit +pods-v4 is out of blocks: `)
	await(t, "kubectl describe lease shows that the pool has no block", func() bool {
		return onLease.MatchString(describe("lease", "calico-audit-exporter", "--namespace", "kube-system"))
	})
	await(t, "all is written", func() bool { s := first.scrape(); return s["calico_audit_events_waiting"] == 0 })
	report := first.report()
	all, err := c.Kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=calico-audit"})
	if err != nil {
		t.Fatal(err)
	}
	want := len(report.Diagnoses)
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.Severity >= state.Error && (f.Subject.Kind == state.KindNode || report.DiagnosisOf(f) == nil) {
			want++
		}
	}
	if len(all.Items) != want || want != 3 {
		t.Errorf("there are %d Events, want %d: for the diagnosis, and for each node without a block", len(all.Items), want)
	}
	for _, v := range all.Items {
		if v.Count != 1 {
			t.Errorf("%s was written %d times", v.Name, v.Count)
		}
	}
	if s := second.scrape(); s[writer] != 0 || s["calico_audit_events_written_total"] != 0 {
		t.Errorf("the second replica writes, too: %v Events", s["calico_audit_events_written_total"])
	}
	if s := first.scrape(); s["calico_audit_event_errors_total"] != 0 || s["calico_audit_events_written_total"] != float64(len(all.Items)) {
		t.Errorf("%v errors, %v written", s["calico_audit_event_errors_total"], s["calico_audit_events_written_total"])
	}
	if code, logs := first.end(); code != exit.CodeOK || strings.Contains(logs, `"level":"WARN"`) {
		t.Errorf("it ended with %d:\n%s", code, logs)
	}
	lease, err := c.Kube.CoordinationV1().Leases("kube-system").Get(t.Context(), "calico-audit-exporter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := *lease.Spec.HolderIdentity; holder != "" && second.scrape()[writer] == 0 {
		t.Errorf("the Lease was not released: %s holds it", holder)
	}
}

// TestExporterEventsUsage: what makes no sense about Events is said before anything is
// asked of a cluster.
func TestExporterEventsUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--events-lease goes with --events":               {"--events-lease", "x"},
		"reading --events-severity: unknown severity":     {"--events", "--events-severity", "bad"},
		"reading --events-object: \"x\" is not an object": {"--events", "--events-object", "x"},
		"--events-refresh 1s is less than a minute":       {"--events", "--events-refresh", "1s"},
		"--events-lease is empty":                         {"--events", "--events-lease", ""},
	} {
		got := calicoAudit(t, append([]string{"exporter", "--server", "http://127.0.0.1:1"}, args...)...)
		if got.code != exit.CodeUsage || !strings.Contains(got.err, want) {
			t.Errorf("%v: exit code %d, %s", args, got.code, got.err)
		}
	}
}
