package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const chartImage = "image: {repository: registry.example.com/calico-audit, tag: v1}\n"

// TestChartContradictions: values that contradict each other, or the cluster, are rejected
// with the value to set.
func TestChartContradictions(t *testing.T) {
	for values, want := range map[string]string{
		`image: {repository: ""}`:                                                     "image.repository is empty: name the image",
		`agent: {enabled: true}`:                                                      "the agents have no certificate: set agent.tls.certManager=true, or agent.tls.secret",
		`agent: {enabled: true, tls: {enabled: false}}`:                               "set agent.insecure=true to accept that",
		`agent: {enabled: true, insecure: true, tls: {certManager: true}}`:            "agent.insecure is true and agent.tls.enabled is true",
		`agent: {enabled: true, tls: {enabled: false, certManager: true}}`:            "set agent.tls.enabled=true",
		`guardRails: {mode: deny}`:                                                    "guardRails.mode requires Kubernetes 1.31 or newer, and this is v1.30.0: set guardRails.mode=off",
		`monitoring: {prometheusRule: true, alerts: {CalicoNothing: {}}}`:             "monitoring.alerts.CalicoNothing: there is no such alert",
		`monitoring: {prometheusRule: true, alerts: {CalicoFinding: {threshold: 3}}}`: "monitoring.alerts.CalicoFinding has no threshold; these have one: CalicoAuditStale, ",
	} {
		out, err := helm(t, chartImage+values, "template", "calico-audit", "--kube-version", "v1.30.0")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v %s", values, want, err, out)
		}
	}
}

// TestChartMonitors: a scrape's timeout is not longer than its interval, which Prometheus
// would reject, and fields of the values replace the chart's.
func TestChartMonitors(t *testing.T) {
	timeouts := map[string]string{"2m": "30s", "10s": "10s", "29s999ms": "29s999ms", "1m": "30s", "30000ms": "30s", "1d": "30s", "1h30m": "30s"}
	var sets []string
	for interval := range timeouts {
		sets = append(sets, chartImage+`agent: {enabled: true, tls: {certManager: true}}
exporter: {webConfigSecret: web}
monitoring: {podMonitor: true, serviceMonitor: true, interval: 1d, endpoint: {scheme: http, port: metrics, honorLabels: true}, agentInterval: `+interval+`}
`)
	}
	out, err := helmEach(t, sets)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, o := range parse(t, out) {
		switch o.GetKind() {
		case "PodMonitor":
			checked++
			e := decode[monitoringv1.PodMonitor](t, o).Spec.PodMetricsEndpoints[0]
			if want := timeouts[string(e.Interval)]; want == "" || string(e.ScrapeTimeout) != want {
				t.Errorf("interval %s, timeout %s, want %q", e.Interval, e.ScrapeTimeout, want)
			}
		case "ServiceMonitor":
			s := decode[monitoringv1.ServiceMonitor](t, o).Spec.Endpoints[0]
			if s.Scheme == nil || *s.Scheme != "http" || s.Port != "metrics" || s.Interval != "1d" || !s.HonorLabels {
				t.Errorf("the ServiceMonitor's endpoint is %+v", s)
			}
		}
	}
	if checked != len(timeouts) {
		t.Errorf("there are %d PodMonitors", checked)
	}
}

// TestChartPods: the values reach the pods, and leave the labels by which they are found.
func TestChartPods(t *testing.T) {
	common := `podLabels: {team: network, app.kubernetes.io/name: other}, podAnnotations: {a: b}, extraEnv: [{name: HTTPS_PROXY, value: "http://proxy"}]`
	values := chartImage + `exporter: {` + common + `, hostNetwork: true, serviceAccount: {name: mine}}
agent: {enabled: true, tls: {secret: web}, ` + common + `, serviceAccount: {annotations: {role: reader}}}
repair: {enabled: true, timeZone: Europe/Berlin, journal: {size: 1.5Gi}, ` + common + `}
networkPolicy: {enabled: true}
`
	objects := chart(t, "audit", values)
	d := the[appsv1.Deployment](t, objects, "Deployment", "calico-audit-exporter")
	job := the[batchv1.CronJob](t, objects, "CronJob", "calico-audit-repair").Spec
	pods := map[string]corev1.PodTemplateSpec{
		"exporter": d.Spec.Template,
		"agent":    the[appsv1.DaemonSet](t, objects, "DaemonSet", "calico-audit-agent").Spec.Template,
		"repair":   job.JobTemplate.Spec.Template,
	}
	for name, p := range pods {
		if p.Labels["team"] != "network" || p.Labels["app.kubernetes.io/name"] != "calico-audit-"+name || p.Annotations["a"] != "b" ||
			!slices.Contains(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy"}) {
			t.Errorf("%s: labels %v, annotations %v, environment %v", name, p.Labels, p.Annotations, p.Spec.Containers[0].Env)
		}
		if p.Spec.PriorityClassName != "" {
			t.Errorf("%s: some clusters reject the class %s outside of kube-system", name, p.Spec.PriorityClassName)
		}
	}
	if pods["agent"].Annotations["calico-audit/agent-scheme"] != "https" {
		t.Errorf("the agents' annotations are %v", pods["agent"].Annotations)
	}
	if s := d.Spec.Strategy.RollingUpdate; !d.Spec.Template.Spec.HostNetwork || s.MaxUnavailable.IntValue() != 1 || s.MaxSurge.IntValue() != 0 {
		t.Errorf("on the nodes' network %v, a rollout is %+v: the node's port is taken", d.Spec.Template.Spec.HostNetwork, s)
	}
	if *job.TimeZone != "Europe/Berlin" {
		t.Errorf("the time zone is %s", *job.TimeZone)
	}
	for _, o := range objects {
		switch o.GetKind() + " " + o.GetName() {
		case "ServiceAccount calico-audit-exporter", "NetworkPolicy calico-audit-exporter":
			t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
		case "ServiceAccount calico-audit-agent":
			if o.GetAnnotations()["role"] != "reader" {
				t.Errorf("the account's annotations are %v", o.GetAnnotations())
			}
		case "ClusterRoleBinding calico-audit-exporter":
			if s := decode[rbacv1.ClusterRoleBinding](t, o).Subjects[0]; s.Name != "mine" || d.Spec.Template.Spec.ServiceAccountName != "mine" {
				t.Errorf("the rights are those of %+v, and the pods' account is %s", s, d.Spec.Template.Spec.ServiceAccountName)
			}
		case "PersistentVolumeClaim calico-audit-repair-journal":
			if q := decode[corev1.PersistentVolumeClaim](t, o).Spec.Resources.Requests.Storage(); q.String() != "1536Mi" {
				t.Errorf("the journal's size is %s", q)
			}
		}
	}
}

// TestChartNetworkPolicies: with the API servers' addresses, the pods can reach only these, and the
// exporter also the agents. Without the addresses, only incoming traffic is restricted, because the
// required outgoing traffic is unknown.
func TestChartNetworkPolicies(t *testing.T) {
	for _, servers := range []string{"", ", apiServers: [{cidr: 192.0.2.10/32, port: 6443}]"} {
		objects := chart(t, "kube-system", chartImage+"exporter: {agents: true}\nagent: {enabled: true, tls: {secret: web}}\nrepair: {enabled: true}\nnetworkPolicy: {enabled: true"+servers+"}\n")
		for name, want := range map[string][]string{"calico-audit-exporter": {"192.0.2.10/32:6443", ":19098"}, "calico-audit-repair": {"192.0.2.10/32:6443"}} {
			spec := the[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", name).Spec
			types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			var may []string
			if servers == "" {
				want = nil
			} else {
				types = append(types, networkingv1.PolicyTypeEgress)
			}
			for _, e := range spec.Egress {
				to := ""
				if len(e.To) > 0 {
					to = e.To[0].IPBlock.CIDR
				}
				may = append(may, to+":"+e.Ports[0].Port.String())
			}
			if !slices.Equal(spec.PolicyTypes, types) || !slices.Equal(may, want) {
				t.Errorf("%s with %q restricts %v and reaches %v", name, servers, spec.PolicyTypes, may)
			}
		}
	}
}

// TestChartAlerts: single alerts can be turned off and changed, and the rest stays.
func TestChartAlerts(t *testing.T) {
	rules := func(values string) (alerts map[string][]monitoringv1.Rule, count int) {
		objects := chart(t, "kube-system", chartImage+"monitoring: {prometheusRule: true"+values+"}\n")
		alerts = map[string][]monitoringv1.Rule{}
		for _, g := range the[monitoringv1.PrometheusRule](t, objects, "PrometheusRule", "calico-audit").Spec.Groups {
			for _, r := range g.Rules {
				alerts[r.Alert] = append(alerts[r.Alert], r)
				count++
			}
		}
		return alerts, count
	}
	before, all := rules("")
	thresholds := map[string]string{"CalicoPoolRunway": "< 1209600", "CalicoPoolBlocksRunOut": "< 86400", "CalicoAuditStale": "> 900", "CalicoLeaksPileUp": "> 10"}
	var changes strings.Builder
	for name := range thresholds {
		fmt.Fprintf(&changes, "%s: {threshold: 4242}, ", name)
	}
	after, left := rules(", alertLabels: {team: network}, alerts: {" + changes.String() +
		"CalicoFinding: {enabled: false}, CalicoCriticalFinding: {for: 1d, labels: {severity: page, team: core}}}")
	if len(after["CalicoFinding"]) != 0 || left != all-1 {
		t.Errorf("%d rules are left of %d", left, all)
	}
	if r := after["CalicoCriticalFinding"][0]; string(*r.For) != "1d" || r.Labels["severity"] != "page" || r.Labels["team"] != "core" {
		t.Errorf("the changed rule is %+v", r)
	}
	for name, was := range thresholds {
		if text := before[name][0].Expr.StrVal; strings.Count(text, was) != 1 {
			t.Errorf("%s compares not once with %s: %s", name, was, text)
		}
		if got, want := after[name][0].Expr.StrVal, strings.Replace(before[name][0].Expr.StrVal, was, was[:2]+"4242", 1); got != want {
			t.Errorf("%s with another threshold: %s", name, got)
		}
	}
	for i, r := range after["CalicoPoolOutOfAddresses"] {
		if want := before["CalicoPoolOutOfAddresses"][i].Labels["severity"]; r.Labels["severity"] != want || r.Labels["team"] != "network" {
			t.Errorf("CalicoPoolOutOfAddresses has %v, want severity %s", r.Labels, want)
		}
	}
}

// TestChartInUmbrella: as a part of another chart, with its usual condition.
func TestChartInUmbrella(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "charts", "calico-audit"), os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n- {name: calico-audit, version: '>=0.0.0-0', condition: calico-audit.enabled}\n"
	if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// A release names its image here.
	if err := os.WriteFile(filepath.Join(dir, "charts", "calico-audit", "files", "image-repository"), []byte("quay.io/example/calico-audit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for enabled, want := range map[string]bool{"true": true, "false": false} {
		out, err := helmOf(t, dir, "calico-audit: {enabled: "+enabled+"}", "template", "platform")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out, "image: quay.io/example/calico-audit:"); got != want {
			t.Errorf("enabled: %s renders the exporter: %v", enabled, got)
		}
	}
}

// testPod returns the pod of "helm test".
func testPod(t *testing.T, values string) *corev1.Pod {
	t.Helper()
	out, err := helm(t, values, "template", "calico-audit", "--namespace", "audit", "--show-only", "templates/tests/report.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return the[corev1.Pod](t, parse(t, out), "Pod", "calico-audit-test")
}

// TestChartTest: "helm test" runs a command that exists, under the exporter's account.
func TestChartTest(t *testing.T) {
	p := testPod(t, chartImage+"exporter: {hostNetwork: true, serviceAccount: {name: mine}}\n")
	checkFlags(t, "report", p.Spec.Containers[0].Args)
	if p.Annotations["helm.sh/hook"] != "test" || p.Spec.ServiceAccountName != "mine" || !p.Spec.HostNetwork || p.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pod is %+v", p)
	}
}
