package examples_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/repair"
)

const chartDir = "../../../examples/helm/calico-audit"

// everything holds values with which the chart renders nearly everything.
const everything = `
image: {repository: registry.example.com/calico-audit, tag: v1}
agent: {enabled: true, insecure: true, tls: {enabled: false}}
repair: {enabled: true}
networkPolicy: {enabled: true}
monitoring: {serviceMonitor: true, podMonitor: true, prometheusRule: true, dashboard: true}
guardRails: {mode: deny}
access: {report: true, agents: true, repair: true, consolidate: true}
`

// chartValues are value sets that render different objects.
var chartValues = map[string]string{
	"image alone": `image: {repository: registry.example.com/calico-audit}`,
	"everything":  everything,
	"each other way": everything + `
exporter: {replicas: 1, maxNodes: 500, agents: true, webConfigSecret: web, hostNetwork: true, priorityClassName: high, podLabels: {team: network}, podAnnotations: {a: b}, extraEnv: [{name: HTTPS_PROXY, value: "http://proxy"}], serviceAccount: {annotations: {a: b}}, tolerations: [{key: a, operator: Exists}], affinity: {nodeAffinity: {}}, extraArgs: [--grace=30m], podDisruptionBudget: {enabled: false}}
agent: {enabled: true, enterNamespaces: true, seLinux: true, tls: {certManager: true}, priorityClassName: system-node-critical, podAnnotations: {a: b}, maxUnavailable: 3, extraArgs: [--max-age=20s]}
repair: {enabled: true, suspend: true, schedule: "@daily", timeZone: Europe/Berlin, extraArgs: [--pool=a], nodeSelector: {a: b}, tolerations: [{operator: Exists}], priorityClassName: system-cluster-critical, journal: {storageClassName: fast, size: 1Gi, accessModes: [ReadWriteOncePod]}}
networkPolicy: {enabled: true, apiServers: [{cidr: 192.0.2.10/32, port: 6443}, {cidr: "2001:db8::1/128", port: 6443}]}
monitoring: {serviceMonitor: true, podMonitor: true, prometheusRule: true, dashboard: true, labels: {release: x}, cluster: east, runbookURL: "https://wiki.example.com/alerts#", endpoint: {tlsConfig: {insecureSkipVerify: true}, relabelings: [{targetLabel: zone, replacement: a}]}, alerts: {CalicoFinding: {enabled: false}}, alertLabels: {team: network}, dashboardAnnotations: {grafana_folder: Network}}
guardRails: {mode: warn, native: true}
image: {repository: registry.example.com/calico-audit, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullSecrets: [pull], pullPolicy: Always}
`,
	// Like reused values of a release from before these values existed.
	"values of before": `
image: {repository: registry.example.com/calico-audit, tag: v1}
exporter: {maxNodes: null, hostNetwork: null, podLabels: null, podAnnotations: null, extraEnv: null, serviceAccount: null}
agent: {enabled: true, insecure: null, tls: {secret: mine}, podLabels: null, podAnnotations: null, extraEnv: null, serviceAccount: null}
repair: {enabled: true, timeZone: null, podLabels: null, podAnnotations: null, extraEnv: null, serviceAccount: null}
monitoring: {prometheusRule: true, dashboard: true, runbookURL: null, alerts: null, alertLabels: null, dashboardAnnotations: null}
`,
	"repair alone": `
image: {repository: registry.example.com/calico-audit, tag: v1}
exporter: {enabled: false}
repair: {enabled: true, journal: {existingClaim: mine}}
networkPolicy: {enabled: true}
monitoring: {serviceMonitor: true, podMonitor: true}
guardRails: {mode: off}
`,
}

// helm runs Helm, with the chart and values if the command takes them. Each line of values
// is a complete top-level key; the last one with a key wins.
func helm(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	return helmOf(t, chartDir, values, args...)
}

// helmOf runs Helm with the chart of a directory.
func helmOf(t *testing.T, dir, values string, args ...string) (string, error) {
	t.Helper()
	testcluster.SkipIfShort(t)
	program, err := programs.Binary(t.Context(), "helm")
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(merged(t, values))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if args[0] != "rollback" && args[0] != "uninstall" {
		args = append(args, dir, "--values", path)
	}
	if (args[0] == "template" || args[0] == "lint") && !slices.Contains(args, "--kube-version") {
		version, err := programs.Version(t.Context(), "kube-apiserver")
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--kube-version", version)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	// No settings of the user or a cluster, and no client-side rate limit.
	cmd.Env = []string{"HOME=" + t.TempDir(), "HELM_QPS=1000", "HELM_BURST_LIMIT=1000"}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), errors.New(string(exit.Stderr))
	}
	return string(out), err
}

// merged parses values whose lines are complete top-level keys.
func merged(t *testing.T, values string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for line := range strings.Lines(values) {
		if err := yaml.Unmarshal([]byte(line), &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// helmEach runs "helm template" once for several sets of values: with a chart that has this
// one as a dependency for each set, under the names c0, c1 and so on.
func helmEach(t *testing.T, sets []string, args ...string) (string, error) {
	t.Helper()
	dir, all := t.TempDir(), map[string]any{}
	if err := os.CopyFS(filepath.Join(dir, "charts", "calico-audit"), os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: v2\nname: each\nversion: 1.0.0\ndependencies:\n"
	for i, values := range sets {
		text += fmt.Sprintf("- {name: calico-audit, version: '*', alias: c%d}\n", i)
		all[fmt.Sprintf("c%d", i)] = merged(t, values)
	}
	if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return helmOf(t, dir, string(line), append([]string{"template", "each"}, args...)...)
}

// renderings caches the output of render, by arguments.
var renderings = map[[2]string]string{}

// render returns the rendered chart. Helm runs once for the same arguments.
func render(t *testing.T, namespace, values string) string {
	t.Helper()
	key := [2]string{namespace, values}
	if out, ok := renderings[key]; ok {
		return out
	}
	out, err := helm(t, values, "template", "calico-audit", "--skip-tests", "--namespace", namespace)
	if err != nil {
		t.Fatal(err)
	}
	renderings[key] = out
	return out
}

// chart returns the rendered objects.
func chart(t *testing.T, namespace, values string) []*unstructured.Unstructured {
	t.Helper()
	out := render(t, namespace, values)
	return parse(t, out)
}

// parse returns the objects of Helm's output.
func parse(t *testing.T, out string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		case o.Object != nil: // a document with only comments is empty
			objects = append(objects, o)
		}
	}
}

// byName indexes objects by kind, namespace and name, with JSON numbers.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, o := range objects {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if out[key] != nil {
			t.Errorf("there are two of %s", key)
		}
		out[key] = *decode[map[string]any](t, o)
	}
	return out
}

// TestJournalsOutliveTheRelease: "helm uninstall" keeps the volume with the journals of repairs.
func TestJournalsOutliveTheRelease(t *testing.T) {
	n := 0
	for _, o := range chart(t, "kube-system", everything) {
		if o.GetKind() == "PersistentVolumeClaim" {
			if n++; o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s goes with the release: %v", o.GetName(), o.GetAnnotations())
			}
		}
	}
	if n != 1 {
		t.Errorf("%d claims", n)
	}
}

// TestChartInAnotherNamespace: all objects of a release are in its namespace, and no
// account outside gets rights. The exception is the Lease for moving pods, which the
// program keeps in "kube-system".
func TestChartInAnotherNamespace(t *testing.T) {
	elsewhere := map[string]bool{}
	for _, o := range chart(t, "calico-audit", everything) {
		if where := o.GetNamespace(); where != "" && where != "calico-audit" {
			elsewhere[o.GetKind()+" "+where+"/"+o.GetName()] = true
		}
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		for _, s := range subjects {
			if where := s.(map[string]any)["namespace"]; where != "calico-audit" {
				t.Errorf("%s %s binds to an account of %v", o.GetKind(), o.GetName(), where)
			}
		}
	}
	want := map[string]bool{}
	for _, kind := range []string{"Role ", "RoleBinding "} {
		want[kind+repair.LeaseNamespace+"/calico-audit-repair-consolidate"] = true
	}
	if diff := cmp.Diff(want, elsewhere); diff != "" {
		t.Errorf("what lies outside of the release's namespace (-want +got):\n%s", diff)
	}
}

// TestChartGrantsOneByOne: each right that is requested in addition to the report's brings only its
// own role.
func TestChartGrantsOneByOne(t *testing.T) {
	for access, roles := range map[string][]string{
		"":                                  {"calico-audit"},
		", agents: true":                    {"calico-audit", "calico-audit-agents"},
		", repair: true":                    {"calico-audit", "calico-audit-repair-full"},
		", repair: true, consolidate: true": {"calico-audit", "calico-audit-repair-consolidate", "calico-audit-repair-full"},
	} {
		var got []string
		for _, o := range chart(t, "kube-system", "image: {repository: registry.example.com/calico-audit, tag: v1}\nexporter: {enabled: false}\naccess: {report: true"+access+"}\n") {
			if o.GetKind() == "ClusterRole" {
				got = append(got, o.GetName())
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(roles, got); diff != "" {
			t.Errorf("access.report%s: ClusterRoles (-want +got):\n%s", access, diff)
		}
	}
}

// TestChartLint: Helm's linter reports nothing, and the Prometheus operator knows all
// fields of its objects.
func TestChartLint(t *testing.T) {
	for name, values := range chartValues {
		t.Run(name, func(t *testing.T) {
			if out, err := helm(t, values, "lint", "--strict"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for _, o := range chart(t, "kube-system", values) {
				switch o.GetKind() {
				case "ServiceMonitor":
					decode[monitoringv1.ServiceMonitor](t, o)
				case "PodMonitor":
					decode[monitoringv1.PodMonitor](t, o)
				case "PrometheusRule":
					decode[monitoringv1.PrometheusRule](t, o)
				}
			}
		})
	}
}

// TestChartNamesTheCluster: each series gets the cluster's name, in addition to the other
// relabelings.
func TestChartNamesTheCluster(t *testing.T) {
	var got []string
	for _, o := range chart(t, "kube-system", chartValues["each other way"]) {
		var relabelings []monitoringv1.RelabelConfig
		switch o.GetKind() {
		case "ServiceMonitor":
			relabelings = decode[monitoringv1.ServiceMonitor](t, o).Spec.Endpoints[0].RelabelConfigs
		case "PodMonitor":
			relabelings = decode[monitoringv1.PodMonitor](t, o).Spec.PodMetricsEndpoints[0].RelabelConfigs
		}
		for _, r := range relabelings {
			if got = append(got, o.GetKind()+" "+r.TargetLabel); r.TargetLabel == "cluster" && *r.Replacement != "east" {
				t.Errorf("%s: the cluster is %q", o.GetKind(), *r.Replacement)
			}
		}
	}
	slices.Sort(got)
	if want := []string{"PodMonitor cluster", "PodMonitor node", "ServiceMonitor cluster", "ServiceMonitor zone"}; !slices.Equal(got, want) {
		t.Errorf("labels that are added: %q, want %q", got, want)
	}
}

// TestChartValuesOfAlerts: the alerts' runbooks are where the values say, and the exporter
// knows how many nodes may join.
func TestChartValuesOfAlerts(t *testing.T) {
	objects := chart(t, "kube-system", chartValues["each other way"])
	rules := the[monitoringv1.PrometheusRule](t, objects, "PrometheusRule", "calico-audit").Spec.Groups[0].Rules
	alerts := 0
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		alerts++
		if want := "https://wiki.example.com/alerts#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	if alerts < 20 {
		t.Errorf("%d alerts", alerts)
	}
	args := the[appsv1.Deployment](t, objects, "Deployment", "calico-audit-exporter").Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--max-nodes=500") {
		t.Errorf("the exporter's arguments are %q", args)
	}
}

// TestChartRefuses: an error names the wrong value and the right form.
func TestChartRefuses(t *testing.T) {
	cases := map[string]string{
		`exporter: {replica: 2}`:                                         "additional properties 'replica' not allowed",
		`exporter: {maxNodes: -1}`:                                       "at '/exporter/maxNodes': minimum: got -1, want 0",
		`exporter: {replicas: two}`:                                      "at '/exporter/replicas': got string, want integer",
		`exporter: {extraArgs: [grace]}`:                                 "at '/exporter/extraArgs/0': 'grace' does not match pattern '^-'",
		`guardRails: {mode: block}`:                                      "at '/guardRails/mode': value must be one of 'off', 'warn', 'deny'",
		`repair: {schedule: nightly}`:                                    "at '/repair/schedule': 'nightly' does not match pattern",
		`repair: {schedule: "@reboot"}`:                                  "at '/repair/schedule': '@reboot' does not match pattern",
		`repair: {maxSteps: 0}`:                                          "at '/repair/maxSteps': minimum: got 0, want 1",
		`repair: {journal: {size: much}}`:                                "at '/repair/journal/size': 'much' does not match pattern",
		`networkPolicy: {apiServers: [{cidr: 192.0.2.1}]}`:               "at '/networkPolicy/apiServers/0': missing property 'port'",
		`image: {digest: v1}`:                                            "at '/image/digest': 'v1' does not match pattern",
		`access: {repair: true}`:                                         "at '/access/report': value must be true",
		`exporter: {prometheus: {url: "http://p"}}`:                      "additional properties 'prometheus' not allowed",
		`exporter: {agents: true}`:                                       "at '/agent/enabled': value must be true",
		`agents: {enabled: true}`:                                        "additional properties 'agents' not allowed",
		`agent: {enabled: true, tls: {certManager: true, secret: mine}}`: "at '/agent/tls/secret': value must be one of '', 'calico-audit-agent-tls'",
		`monitoring: {agentInterval: soon}`:                              "at '/monitoring/agentInterval': 'soon' does not match pattern",
		`repair: {timeZone: "UTC+1 hour"}`:                               "at '/repair/timeZone': 'UTC+1 hour' does not match pattern",
		`repair: {journal: {size: 1.5Kg}}`:                               "at '/repair/journal/size': '1.5Kg' does not match pattern",
	}
	sets := slices.Collect(maps.Keys(cases))
	_, err := helmEach(t, sets)
	if err == nil {
		t.Fatal("all values are accepted")
	}
	for i, values := range sets {
		_, refusal, _ := strings.Cut(err.Error(), fmt.Sprintf("\nc%d:\n", i))
		refusal, _, _ = strings.Cut(refusal, "\n\n")
		if !strings.Contains(refusal, cases[values]) {
			t.Errorf("%s: want %q, got %q", values, cases[values], refusal)
		}
	}
}

// TestChartSchema: schema and values have the same keys.
func TestChartSchema(t *testing.T) {
	read := func(name string) (into map[string]any) {
		raw, err := os.ReadFile(filepath.Join(chartDir, name))
		if err == nil {
			err = yaml.UnmarshalStrict(raw, &into)
		}
		if err != nil {
			t.Fatal(err)
		}
		return into
	}
	var same func(path string, schema, values map[string]any)
	same = func(path string, schema, values map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for key, below := range properties {
			value, known := values[key]
			if !known && path+key != ".global" && path+key != ".enabled" && !strings.HasSuffix(path, ".resources.") {
				t.Errorf("values.yaml lacks %s%s", path, key)
			}
			if held, ok := value.(map[string]any); ok {
				same(path+key+".", below.(map[string]any), held)
			}
		}
		for key := range values {
			if properties != nil && properties[key] == nil {
				t.Errorf("the schema lacks %s%s", path, key)
			}
		}
	}
	same(".", read("values.schema.json"), read("values.yaml"))
}
