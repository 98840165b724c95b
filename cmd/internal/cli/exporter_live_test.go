package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// running is a running exporter.
type running struct {
	t      *testing.T
	url    string
	client *http.Client
	end    func() (code int, logs string)
	// restarted is true if the test itself leaves goroutines, such as its connections to a
	// restarted API server.
	restarted bool
}

// exporter starts an exporter and ends it with the test. It must end without an error, and
// leave no goroutines.
func exporter(t *testing.T, kubeconfig string, args ...string) *running {
	t.Helper()
	before := goleak.IgnoreCurrent()
	logs, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		args := append([]string{"calico-audit", "exporter", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
		code <- cli.Main(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: writer})
		_ = writer.Close()
	}()
	r := &running{t: t, client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}}
	var text strings.Builder
	lines := bufio.NewScanner(logs)
	for r.url == "" && lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		var line struct{ Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("a log line is no JSON: %s", lines.Text())
		}
		if strings.HasPrefix(line.Msg, "Listening") {
			r.url = "http://" + line.Address
		}
	}
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(&text, logs)
		close(read)
	}()
	r.end = sync.OnceValues(func() (int, string) {
		r.client.CloseIdleConnections()
		cancel()
		got := <-code
		<-read
		if err := goleak.Find(before); err != nil && !r.restarted {
			t.Errorf("it left something behind: %v", err)
		}
		return got, text.String()
	})
	if r.url == "" {
		got, logs := r.end()
		t.Fatalf("it does not listen: exit code %d\n%s", got, logs)
	}
	t.Cleanup(func() {
		got, logs := r.end()
		if got != exit.CodeOK {
			t.Errorf("it ended with %d", got)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", logs)
		}
	})
	return r
}

func (r *running) get(path string) (int, string) { r.t.Helper(); return r.getAs(path, "*/*") }

// getAs sends a request with an Accept header.
func (r *running) getAs(path, accept string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	answer, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// series are the samples of one scrape, by name and labels.
type series map[string]float64

func (r *running) scrape() series { return scrape(r.t, r.client, r.url+"/metrics") }

func scrape(t *testing.T, client *http.Client, url string) series {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out := series{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		text := lines.Text()
		if text == "" || text[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(text, ' ')
		v, err := strconv.ParseFloat(text[i+1:], 64)
		if err != nil {
			t.Fatalf("reading %q: %v", text, err)
		}
		out[text[:i]] = v
	}
	return out
}

// report returns the live report.
func (r *running) report() *audit.Report {
	r.t.Helper()
	status, body := r.get("/report.json")
	if status != http.StatusOK {
		r.t.Fatalf("/report.json: %d %s", status, body)
	}
	return outcome{stdout: body}.report(r.t)
}

// await waits for a condition.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about that %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r *running) ready() {
	r.t.Helper()
	await(r.t, "the exporter is ready", func() bool { status, _ := r.get("/readyz"); return status == http.StatusOK })
}

// checkNumbers compares a scrape, with or without series of nodes, with the report of the
// same state.
func checkNumbers(t *testing.T, s series, r *audit.Report, nodes bool) {
	t.Helper()
	want := series{}
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
	c := play(t, seeding.Story)
	e := exporter(t, c.KubeconfigPath(), "--ignore", "check=config/strict-affinity")
	e.ready()

	want := calicoAudit(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json", "--ignore", "check=config/strict-affinity")
	_, body := e.get("/report.json")
	if diff := cmp.Diff(want.comparable(t), outcome{stdout: body}.comparable(t)); diff != "" {
		t.Errorf("the live report is not that of the command (-command +live):\n%s", diff)
	}
	s := e.scrape()
	checkNumbers(t, s, want.report(t), true)
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
	if status, text := e.get("/report"); status != 200 || !strings.Contains(text, "CRITICAL pool/no-free-blocks") {
		t.Errorf("/report: %d %s", status, text)
	}
	if status, page := e.getAs("/report", "text/html,*/*;q=0.8"); status != 200 || !strings.Contains(page, "<!DOCTYPE html>") || !strings.Contains(page, "10.64.75.128/26") {
		t.Errorf("/report for a browser: %d %s", status, page)
	}
	if status, page := e.get("/"); status != 200 || !strings.Contains(page, `href="/report.json"`) {
		t.Errorf("the landing page: %d %s", status, page)
	}
	if status, _ := e.get("/debug/pprof/"); status != 404 {
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
		for k := range e.scrape() {
			if strings.Contains(k, fmt.Sprintf("node=%q", node)) {
				names = append(names, k)
			}
		}
		return names
	}
	await(t, "a node that is new has series, and counts", func() bool {
		return len(of("new-3")) > 0 && e.scrape()[`calico_audit_nodes_without_block{ip_family="IPv4"}`] == 3
	})
	if err := seeder.DeleteNode(t.Context(), "new-3"); err != nil {
		t.Fatal(err)
	}
	await(t, "a node that is gone does not count", func() bool {
		return e.scrape()[`calico_audit_nodes_without_block{ip_family="IPv4"}`] == 2
	})
	if left := of("new-3"); len(left) > 0 {
		t.Errorf("a node that is gone has left %v", left)
	}
	if code, logs := e.end(); code != exit.CodeOK || strings.Contains(logs, `"level":"ERROR"`) {
		t.Errorf("it ended with %d:\n%s", code, logs)
	}
}

// TestExporterOutage: while the API server is down, the last numbers are served with their
// time, and after --max-age the exporter is not ready. When the server is back, the numbers
// are current again.
func TestExporterOutage(t *testing.T) {
	c := play(t, seeding.Healthy)
	e := exporter(t, c.KubeconfigPath(), "--interval", "1s", "--max-age", "6s", "--node-metrics=false")
	e.ready()
	before := e.scrape()
	c.StopAPIServer()
	e.restarted = true
	await(t, "it is not ready", func() bool { status, _ := e.get("/readyz"); return status == http.StatusServiceUnavailable })
	s := e.scrape()
	if s["calico_audit_snapshot_complete"] != 0 || s["calico_audit_snapshot_gaps"] < 1 {
		t.Errorf("the numbers of an outage are called complete")
	}
	time.Sleep(time.Second)
	if later := e.scrape()["calico_audit_snapshot_timestamp_seconds"]; later != s["calico_audit_snapshot_timestamp_seconds"] {
		t.Errorf("the time of the state goes on in an outage, from %v to %v", s["calico_audit_snapshot_timestamp_seconds"], later)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.ready()
	await(t, "the numbers are complete", func() bool { return e.scrape()["calico_audit_snapshot_complete"] == 1 })
	after := e.scrape()
	for k, v := range before {
		if strings.HasPrefix(k, "calico_audit_pool_") && after[k] != v {
			t.Errorf("%s was %v and is %v", k, v, after[k])
		}
		if strings.Contains(k, "node=") {
			t.Errorf("with --node-metrics=false there is %s", k)
		}
	}
	checkNumbers(t, after, e.report(), false)
}
