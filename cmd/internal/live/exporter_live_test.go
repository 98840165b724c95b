package live_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// checkNumbers compares a scrape, with or without series of nodes, with the report of the
// same state.
func checkNumbers(t *testing.T, s clitest.Series, r *audit.Report, nodes bool) {
	t.Helper()
	want := clitest.Series{}
	for _, p := range r.Pools {
		family := "IPv4"
		if strings.Contains(p.CIDR, ":") {
			family = "IPv6"
		}
		labels := fmt.Sprintf(`{ip_family=%q,ippool=%q}`, family, p.Name)
		for name, n := range map[string]blocks.Count{
			"capacity_addresses": p.Addresses.Capacity, "in_use_addresses": p.Addresses.InUse,
			"reserved_addresses": p.Addresses.Reserved, "available_addresses": p.Addresses.Available,
			"allocatable_blocks": p.Blocks.Allocatable, "releasable_blocks": p.Blocks.Releasable, "needed_blocks": p.Blocks.Needed,
		} {
			want["calico_audit_pool_"+name+labels] = n.Float()
		}
		for state, n := range map[string]blocks.Count{"claimed": p.Blocks.Claimed, "free": p.Blocks.Free, "reserved": p.Blocks.Reserved} {
			want[fmt.Sprintf(`calico_audit_pool_blocks{ip_family=%q,ippool=%q,state=%q}`, family, p.Name, state)] = n.Float()
		}
	}
	counts := map[string]float64{}
	for _, f := range r.Findings {
		counts[fmt.Sprintf("check=%q severity=%q", f.Check, f.Severity)]++
		if f.Subject.Kind == state.KindPool {
			want[fmt.Sprintf(`calico_audit_findings{check=%q,ippool=%q,severity=%q}`, f.Check, f.Subject.Name, f.Severity)]++
		}
	}
	for k, v := range s { // a report does not name the pools of all findings
		if m := regexp.MustCompile(`^calico_audit_findings\{(check=.*),ippool=.*,(severity=.*)\}$`).FindStringSubmatch(k); m != nil {
			counts[m[1]+" "+m[2]] -= v
		}
	}
	for labels, n := range counts {
		if n != 0 {
			t.Errorf("findings with %s: %v too few", labels, n)
		}
	}
	for _, c := range checks.All {
		if c.HostViews {
			continue // an exporter without --agents has none
		}
		want[fmt.Sprintf(`calico_audit_check_success{check=%q}`, c.ID)] = 1
		for _, sev := range state.Severities {
			if _, ok := s[fmt.Sprintf(`calico_audit_findings{check=%q,ippool="none",severity=%q}`, c.ID, sev)]; !ok {
				t.Errorf("%s has no series of %s", c.ID, sev)
			}
		}
	}
	for _, n := range r.Nodes {
		if !nodes {
			break
		}
		of := func(name string) (sum int) {
			for k, v := range s {
				if strings.HasPrefix(k, "calico_audit_"+name+"{") && strings.Contains(k, fmt.Sprintf(`node=%q`, n.Name)) {
					sum += int(v)
				}
			}
			return sum
		}
		got := []int{of("node_blocks"), of("node_empty_blocks"), of("node_borrowed_addresses"), of("node_lent_addresses")}
		if expected := []int{len(n.Blocks), n.EmptyBlocks, n.Borrowed, n.Lent}; !slices.Equal(got, expected) {
			t.Errorf("node %s has blocks, empty, borrowed, lent %v, and the report says %v", n.Name, got, expected)
		}
	}
	for k, v := range want {
		if got, ok := s[k]; !ok || got != v {
			t.Errorf("%s is %v (%t), want %v", k, got, ok, v)
		}
	}
}

// TestExporterStory: the metrics, the report and their changes on the incident's cluster.
func TestExporterStory(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	e := clitest.StartExporter(t, c.KubeconfigPath(), "--ignore", "check=config/strict-affinity")
	e.Ready()

	want := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json", "--ignore", "check=config/strict-affinity")
	_, body := e.Get("/report.json")
	if diff := cmp.Diff(want.Comparable(t), clitest.Outcome{Stdout: body}.Comparable(t)); diff != "" {
		t.Errorf("the live report is not that of the command (-command +live):\n%s", diff)
	}
	s := e.Scrape()
	checkNumbers(t, s, want.Report(t), true)
	for name, value := range map[string]float64{
		"calico_audit_findings_muted":                                             1,
		"calico_audit_snapshot_complete":                                          1,
		`calico_audit_nodes_without_block{ip_family="IPv4"}`:                      2,
		`calico_audit_pool_allocatable_blocks{ip_family="IPv4",ippool="pods-v4"}`: 0,
		`calico_audit_pool_borrowed_addresses{ip_family="IPv4",ippool="pods-v4"}`: 4,
	} {
		if s[name] != value {
			t.Errorf("%s is %v, want %v", name, s[name], value)
		}
	}
	if status, text := e.Get("/report"); status != 200 || !strings.Contains(text, "CRITICAL pool/no-free-blocks") {
		t.Errorf("/report: %d %s", status, text)
	}
	if status, page := e.GetAs("/report", "text/html,*/*;q=0.8"); status != 200 || !strings.Contains(page, "<!DOCTYPE html>") || !strings.Contains(page, "10.64.75.128/26") {
		t.Errorf("/report for a browser: %d %s", status, page)
	}
	if status, page := e.Get("/"); status != 200 || !strings.Contains(page, `href="/report.json"`) {
		t.Errorf("the landing page: %d %s", status, page)
	}
	if status, _ := e.Get("/debug/pprof/"); status != 404 {
		t.Errorf("profiles are served without --pprof: %d", status)
	}

	seeder, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := seeder.Node(t.Context(), seeding.Node{Name: "new-3"}); err != nil {
		t.Fatal(err)
	}
	of := func(node string) (names []string) {
		for k := range e.Scrape() {
			if strings.Contains(k, fmt.Sprintf("node=%q", node)) {
				names = append(names, k)
			}
		}
		return names
	}
	clitest.Await(t, "a node that is new has series, and counts", func() bool {
		return len(of("new-3")) > 0 && e.Scrape()[`calico_audit_nodes_without_block{ip_family="IPv4"}`] == 3
	})
	if err := seeder.DeleteNode(t.Context(), "new-3"); err != nil {
		t.Fatal(err)
	}
	clitest.Await(t, "a node that is gone does not count", func() bool {
		return e.Scrape()[`calico_audit_nodes_without_block{ip_family="IPv4"}`] == 2
	})
	if left := of("new-3"); len(left) > 0 {
		t.Errorf("a node that is gone has left %v", left)
	}
	if code, logs := e.End(); code != exit.CodeOK || strings.Contains(logs, `"level":"ERROR"`) {
		t.Errorf("it ended with %d:\n%s", code, logs)
	}
}

// TestExporterOutage: while the API server is down, the last numbers are served with their
// time, and after --max-age the exporter is not ready. When the server is back, the numbers
// are current again.
func TestExporterOutage(t *testing.T) {
	c := clitest.Play(t, seeding.Healthy)
	e := clitest.StartExporter(t, c.KubeconfigPath(), "--interval", "1s", "--max-age", "6s", "--node-metrics=false")
	e.Ready()
	before := e.Scrape()
	c.StopAPIServer()
	e.Restarted = true
	clitest.Await(t, "it is not ready", func() bool { status, _ := e.Get("/readyz"); return status == http.StatusServiceUnavailable })
	s := e.Scrape()
	if s["calico_audit_snapshot_complete"] != 0 || s["calico_audit_snapshot_gaps"] < 1 {
		t.Errorf("the numbers of an outage are called complete")
	}
	time.Sleep(time.Second)
	if later := e.Scrape()["calico_audit_snapshot_timestamp_seconds"]; later != s["calico_audit_snapshot_timestamp_seconds"] {
		t.Errorf("the time of the state goes on in an outage, from %v to %v", s["calico_audit_snapshot_timestamp_seconds"], later)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Ready()
	clitest.Await(t, "the numbers are complete", func() bool { return e.Scrape()["calico_audit_snapshot_complete"] == 1 })
	after := e.Scrape()
	for k, v := range before {
		if strings.HasPrefix(k, "calico_audit_pool_") && after[k] != v {
			t.Errorf("%s was %v and is %v", k, v, after[k])
		}
		if strings.Contains(k, "node=") {
			t.Errorf("with --node-metrics=false there is %s", k)
		}
	}
	checkNumbers(t, after, e.Report(), false)
}
