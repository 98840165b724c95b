package live_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// fleetConfig writes a kubeconfig with contexts for the clusters, and one for an address
// without a server.
func fleetConfig(t *testing.T, clusters map[string]string) string {
	t.Helper()
	all := api.NewConfig()
	all.Clusters["dead"] = &api.Cluster{Server: "https://127.0.0.1:1"}
	all.Contexts["dead"] = &api.Context{Cluster: "dead"}
	for name, path := range clusters {
		one, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[c.Cluster], one.AuthInfos[c.AuthInfo]
		all.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*all, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFleet: two clusters, one of them with two contexts, and an unreachable one give one
// report. Each command in it names the context of its cluster.
func TestFleet(t *testing.T) {
	healthy := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
	if err := testcluster.CopyToNative(t.Context(), clitest.Play(t, seeding.Healthy), healthy); err != nil {
		t.Fatal(err)
	}
	story := clitest.Play(t, seeding.Story)
	config := fleetConfig(t, map[string]string{"lab": healthy.KubeconfigPath(), "prod": story.KubeconfigPath(), "prod-admin": story.KubeconfigPath()})
	run := func(args ...string) clitest.Outcome {
		t.Helper()
		return clitest.Run(t, append([]string{"report", "--kubeconfig", config}, args...)...)
	}

	got := run("--contexts", "all", "-o", "json", "--fail-on", "critical")
	if got.Code != exit.CodeUnread {
		t.Errorf("exit code %d, want 3: %s", got.Code, got.Err)
	}
	for _, want := range []string{"error: context dead: ", "connection refused", "findings at or above --fail-on critical: prod\n"} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("standard error lacks %q: %s", want, got.Err)
		}
	}
	var fleet struct {
		Kind     string
		Complete bool
		Summary  struct{ Clusters, Unread, Critical int }
		Items    []struct {
			Context, Error string
			SameCluster    []string
			audit.Report
		}
	}
	if err := json.Unmarshal([]byte(got.Stdout), &fleet); err != nil {
		t.Fatal(err)
	}
	if fleet.Kind != "FleetReport" || fleet.Complete || fleet.Summary.Clusters != 3 || fleet.Summary.Unread != 1 || fleet.Summary.Critical == 0 || len(fleet.Items) != 3 {
		t.Fatalf("%+v", fleet.Summary)
	}
	dead, prod, lab := fleet.Items[0], fleet.Items[1], fleet.Items[2]
	if dead.Context != "dead" || dead.Error == "" || dead.Complete {
		t.Errorf("first comes %+v", dead)
	}
	if prod.Context != "prod" || !slices.Equal(prod.SameCluster, []string{"prod-admin"}) || !prod.Complete || lab.Context != "lab" || !lab.Complete {
		t.Errorf("then come %s (%v, complete: %v) and %s (complete: %v)", prod.Context, prod.SameCluster, prod.Complete, lab.Context, lab.Complete)
	}
	checkStory(t, &prod.Report)
	commands := 0
	for _, d := range prod.Diagnoses {
		for _, r := range d.Remedies {
			for _, c := range r.Commands {
				if strings.HasPrefix(c, "calico-audit re") {
					commands++
					if strings.Count(c, " --kubeconfig "+config+" --context prod ") != 1 || strings.Count(c, "--kubeconfig") != 1 {
						t.Errorf("%q does not name its cluster", c)
					}
				}
			}
		}
	}
	if commands == 0 {
		t.Error("no remedy has a command")
	}

	// The report of a cluster equals a report of only that cluster.
	alone := run("--context", "prod", "-o", "json").Report(t)
	one, two := *alone, prod.Report
	one.Cluster.TakenAt, two.Cluster.TakenAt = audit.Time{}, audit.Time{}
	a, _ := json.Marshal(one)
	b, _ := json.Marshal(two)
	if string(a) != string(b) {
		t.Errorf("alone the report is\n%s\nand in the fleet\n%s", a, b)
	}

	if got := run("--contexts", "prod,lab", "--fail-on", "critical"); got.Code != exit.CodeFindings || !strings.Contains(got.Stdout, "--context prod ") ||
		strings.Index(got.Stdout, "=== prod ===") < strings.Index(got.Stdout, "\nlab ") {
		t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
	}
	if got := run("--contexts", "lab", "--fail-on", "error"); got.Code != exit.CodeOK {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}

	// A filter may name an object of only one cluster. A name that no cluster has is an
	// error.
	if got := run("--contexts", "lab,prod", "--node", "new-1", "-o", `jsonpath={range .items[*]}{.context}: {.findings[?(@.check=="node/no-block")].subject.name}{"\n"}{end}`); got.Code != exit.CodeOK || got.Stdout != "prod: new-1\nlab: \n" {
		t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
	}
	if got := run("--contexts", "lab,prod", "--node", "new-7"); got.Code != exit.CodeUsage || !strings.Contains(got.Err, `no node "new-7"; did you mean`) {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}

	// JUnit has a suite for each cluster, tickets have a table; both name the unread
	// cluster.
	var suites struct {
		Errors int `xml:"errors,attr"`
		Suites []struct {
			Name   string `xml:"name,attr"`
			Errors int    `xml:"errors,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(run("--contexts", "all", "-o", "junit").Stdout), &suites); err != nil || len(suites.Suites) != 3 || suites.Suites[0].Name != "calico-audit dead" || suites.Suites[0].Errors != 1 || suites.Errors != 1 {
		t.Errorf("%v: %+v", err, suites)
	}
	if got := run("--contexts", "all", "-o", "markdown"); !strings.Contains(got.Stdout, "| `dead` | NOT READ | ") || !strings.Contains(got.Stdout, "--context prod ") {
		t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
	}
	page := filepath.Join(t.TempDir(), "fleet.html")
	if got := run("--contexts", "all", "-o", "html="+page, "-o", "wide"); got.Code != exit.CodeUnread {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("<[^>]*>").ReplaceAllString(string(html), "")
	if !strings.Contains(shown, "calico-audit repair --context prod ") || strings.Contains(shown, "calico-audit repair --kubeconfig") {
		t.Errorf("the page's commands do not name their cluster alone:\n%s", shown)
	}
}

// TestFleetReadBack: a fleet report is read back in every format, filtered and with the
// same exit code.
func TestFleetReadBack(t *testing.T) {
	story := clitest.Play(t, seeding.Story)
	config := fleetConfig(t, map[string]string{"prod": story.KubeconfigPath()})
	file := filepath.Join(t.TempDir(), "fleet.json")
	if got := clitest.Run(t, "report", "--kubeconfig", config, "--contexts", "all", "-o", "json="+file); got.Code != exit.CodeUnread {
		t.Fatalf("exit code %d: %s", got.Code, got.Err)
	}
	read := func(args ...string) clitest.Outcome {
		t.Helper()
		got := clitest.Run(t, append([]string{"report", "-f", file}, args...)...)
		if got.Code != exit.CodeUnread || !strings.Contains(got.Err, "context dead: ") {
			t.Errorf("%v: exit code %d: %s", args, got.Code, got.Err)
		}
		return got
	}
	again := read("-o", "json")
	if raw, err := os.ReadFile(file); err != nil || again.Stdout != string(raw) {
		t.Errorf("%v: read back it is\n%s", err, again.Stdout)
	}
	yaml := filepath.Join(t.TempDir(), "fleet.yaml")
	read("-o", "yaml="+yaml)
	if got := clitest.Run(t, "report", "-f", yaml, "-o", "json"); got.Stdout != again.Stdout {
		t.Errorf("by way of YAML it is\n%s", got.Stdout)
	}
	for format, want := range map[string]string{
		"table": "=== prod ===", "wide": "node/no-block", "markdown": "| `dead` | NOT READ | ", "html": `<a href="#cluster-2">prod</a>`, "junit": `name="calico-audit prod"`,
	} {
		if got := read("-o", format); !strings.Contains(got.Stdout, want) || strings.Contains(got.Stdout, "All of it: ") {
			t.Errorf("-o %s lacks %q:\n%s", format, want, got.Stdout)
		}
	}
	narrow := read("--check", "node/no-block", "--ignore", "node=new-2", "--fail-on", "warning", "-o", `jsonpath={range .items[*]}{range .findings[*]}{.check} {.subject.name}{"\n"}{end}{end}`)
	if narrow.Stdout != "node/no-block new-1\n" || !strings.Contains(narrow.Err, "at or above --fail-on warning: prod") {
		t.Errorf("it is narrowed to %q: %s", narrow.Stdout, narrow.Err)
	}
	for flag, want := range map[string]string{"--node=new-1": "--pool and --node", "--at=2026-01-01T00:00:00Z": "--at", "--watch=1m": "--watch", "--contexts=prod": "--filename"} {
		if got := clitest.Run(t, "report", "-f", file, flag); got.Code != exit.CodeUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%s: exit code %d: %s", flag, got.Code, got.Err)
		}
	}
}

// TestFleetCapacity: each cluster is asked. An unreachable cluster, and one that never
// responds, do not delay the others.
func TestFleetCapacity(t *testing.T) {
	story := clitest.Play(t, seeding.Story)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	config := fleetConfig(t, map[string]string{"prod": story.KubeconfigPath(), "prod-admin": story.KubeconfigPath()})
	all, err := clientcmd.LoadFromFile(config)
	if err != nil {
		t.Fatal(err)
	}
	all.Clusters["silent"] = &api.Cluster{Server: "https://" + silent.Addr().String()}
	all.Contexts["silent"] = &api.Context{Cluster: "silent"}
	if err := clientcmd.WriteToFile(*all, config); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) clitest.Outcome {
		t.Helper()
		return clitest.Run(t, append([]string{"capacity", "--kubeconfig", config}, args...)...)
	}
	began := time.Now()
	got := run("--contexts", "all", "--cluster-timeout", "4s", "--add-nodes", "2", "-o", "json")
	if took := time.Since(began); got.Code != exit.CodeUnread || took > 30*time.Second {
		t.Errorf("exit code %d after %v: %s", got.Code, took, got.Err)
	}
	for _, want := range []string{"error: context dead: ", "connection refused", "error: context silent: not read within 4s (--cluster-timeout)"} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("standard error lacks %q: %s", want, got.Err)
		}
	}
	var doc struct {
		Kind    string
		Summary struct{ Clusters, Unread, DoNotFit, Fit int }
		Items   []struct {
			Context, Error string
			SameCluster    []string
			Outcome        *struct {
				Fits         bool
				WithoutBlock []string
			}
		}
	}
	if err := json.Unmarshal([]byte(got.Stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if s := doc.Summary; doc.Kind != "FleetCapacityReport" || s.Clusters != 3 || s.Unread != 2 || s.DoNotFit != 1 || s.Fit != 0 || len(doc.Items) != 3 {
		t.Fatalf("%s: %+v", doc.Kind, s)
	}
	if prod := doc.Items[2]; prod.Context != "prod" || prod.Error != "" || prod.Outcome.Fits || len(prod.Outcome.WithoutBlock) != 2 || !slices.Equal(prod.SameCluster, []string{"prod-admin"}) {
		t.Errorf("last comes %+v", prod)
	}
	page := filepath.Join(t.TempDir(), "fleet.html")
	got = run("--contexts", "prod,dead", "--add-nodes", "2", "-o", "table", "-o", "markdown="+filepath.Join(t.TempDir(), "x.md"), "-o", "html="+page)
	if got.Code != exit.CodeUnread || !regexp.MustCompile(`(?ms)^dead +NOT READ +.*\nprod +DOES NOT FIT +Existing nodes without a block of their own: 2; no room for 2 of them: new-1,\n +new-2; nodes that get no block: 2`).MatchString(got.Stdout) {
		t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "What if 2 nodes join") {
		t.Errorf("%v: %s", err, html)
	}
	// Each cluster validates the scenario itself, unless it names objects of one cluster.
	if got := run("--contexts", "prod", "--block-size", "nowhere=28"); got.Code != exit.CodeUsage || !strings.Contains(got.Err, `context prod: there is no pool "nowhere"`) {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	for _, args := range [][]string{{"--contexts", "prod", "--remove-node", "n1"}, {"--contexts", "prod", "-f", "."}, {"--contexts", "prod", "--cluster-timeout", "-1s"}, {"--cluster-timeout", "1s"}} {
		if got := run(args...); got.Code != exit.CodeUsage || !strings.Contains(got.Err, "--contexts") && !strings.Contains(got.Err, "negative") {
			t.Errorf("%v: exit code %d: %s", args, got.Code, got.Err)
		}
	}
	if got := run("--contexts", "prod"); got.Code != exit.CodeOK || !strings.Contains(got.Stdout, "FULL") {
		t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
	}
}

// TestFleetInterrupted: an interrupt ends all readings.
func TestFleetInterrupted(t *testing.T) {
	config := fleetConfig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := clitest.RunUntil(t, ctx, "report", "--kubeconfig", config, "--contexts", "all"); got.Code != exit.CodeUnread || !strings.Contains(got.Err, "interrupted") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
}
