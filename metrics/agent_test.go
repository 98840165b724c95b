package metrics

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/calico-audit/calico-audit/blocks"
)

func sample() *blocks.HostView {
	p := netip.MustParsePrefix
	return &blocks.HostView{
		APIVersion: "calico-audit/v1alpha1", Kind: blocks.HostViewKind, Node: `n"routes":[]`,
		TakenAt: time.Date(2026, 1, 31, 8, 0, 0, 250e6, time.UTC),
		Routes: []blocks.HostRoute{
			{Dst: p("0.0.0.0/0"), Type: "unicast", Protocol: "static", Table: "main", Gateway: "192.168.7.1", Dev: "eth0"},
			{Dst: p("10.64.75.0/26"), Type: "blackhole", Protocol: "bird", Table: "main"},
			{Dst: p("10.64.75.64/26"), Type: "blackhole", Protocol: "80", Table: "main"},
			{Dst: p("10.64.75.5/32"), Type: "unicast", Protocol: "80", Table: "main", Dev: "cali1"},
			{Dst: p("2001:db8::/122"), Type: "blackhole", Protocol: "bird", Table: "main", Metric: 1024, Dev: "lo"},
		},
		Lookups: []blocks.HostLookup{{Dst: p("10.64.75.0/26"), Result: "blackhole", Match: p("10.64.75.0/26")}},
		Namespaces: []blocks.HostNamespace{
			{ID: "1", Host: true, Addresses: []netip.Prefix{p("192.168.7.10/24")}, HostInterfaces: []string{}, Pids: []int{1, 9}, States: []string{"D", "S"}, Processes: 2},
			{ID: "2", Addresses: []netip.Prefix{p("10.64.75.5/32"), p("2001:db8::5/128")}, HostInterfaces: []string{"cali1"}, Pids: []int{20, 21, 22}, States: []string{"D", "D", "S"}, Processes: 3},
			{ID: "3", Addresses: []netip.Prefix{}, HostInterfaces: []string{}, Pids: []int{30}, States: []string{"D"}, Processes: 1},
		},
		Gaps: []string{"something"},
	}
}

// TestAgentMetrics: the whole exposition, and the result of Prometheus' linter.
func TestAgentMetrics(t *testing.T) {
	a := NewAgent(AgentOptions{
		Scan:  func(context.Context) (*blocks.HostView, error) { return sample(), nil },
		Build: Build{"v1.2.3", "abc", "go1.26"}, MaxAge: time.Hour,
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(a.samples))
	if n, err := testutil.GatherAndCount(registry, "calico_audit_agent_view_timestamp_seconds"); err != nil || n != 0 {
		t.Errorf("before the first scan there are metrics of a view: %d, %v", n, err)
	}
	if _, err := a.View(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP calico_audit_agent_blackhole_routes Routes that drop the traffic that they match.
# TYPE calico_audit_agent_blackhole_routes gauge
calico_audit_agent_blackhole_routes{ip_family="IPv4"} 2
calico_audit_agent_blackhole_routes{ip_family="IPv6"} 1
# HELP calico_audit_agent_build_info Build of the agent. The value is always 1.
# TYPE calico_audit_agent_build_info gauge
calico_audit_agent_build_info{goversion="go1.26",revision="abc",version="v1.2.3"} 1
# HELP calico_audit_agent_gaps Reads of the last scan that failed. The host view names them.
# TYPE calico_audit_agent_gaps gauge
calico_audit_agent_gaps 1
# HELP calico_audit_agent_namespace_addresses Addresses in network namespaces other than the host's own.
# TYPE calico_audit_agent_namespace_addresses gauge
calico_audit_agent_namespace_addresses{ip_family="IPv4"} 1
calico_audit_agent_namespace_addresses{ip_family="IPv6"} 1
# HELP calico_audit_agent_network_namespaces Network namespaces of the node, including the host's own.
# TYPE calico_audit_agent_network_namespaces gauge
calico_audit_agent_network_namespaces 3
# HELP calico_audit_agent_processes_uninterruptible Processes in uninterruptible sleep (state D) that hold a network namespace with addresses, other than the host's own. A moment in this state is normal; a process that stays in it holds its addresses and cannot be killed.
# TYPE calico_audit_agent_processes_uninterruptible gauge
calico_audit_agent_processes_uninterruptible 2
# HELP calico_audit_agent_routes Routes in the routing tables in use, except the local table, by type and by the protocol that made them.
# TYPE calico_audit_agent_routes gauge
calico_audit_agent_routes{protocol="80",type="blackhole"} 1
calico_audit_agent_routes{protocol="80",type="unicast"} 1
calico_audit_agent_routes{protocol="bird",type="blackhole"} 2
calico_audit_agent_routes{protocol="static",type="unicast"} 1
# HELP calico_audit_agent_scan_errors_total Scans that failed. After a failed scan, the metrics of the view are absent.
# TYPE calico_audit_agent_scan_errors_total counter
calico_audit_agent_scan_errors_total 0
# HELP calico_audit_agent_scans_total Scans of the node's kernel since the agent started.
# TYPE calico_audit_agent_scans_total counter
calico_audit_agent_scans_total 1
# HELP calico_audit_agent_view_timestamp_seconds Unix time, by the node's clock, at which the last scan began.
# TYPE calico_audit_agent_view_timestamp_seconds gauge
calico_audit_agent_view_timestamp_seconds 1.76984640025e+09
`
	var names []string // all except the duration
	for line := range strings.Lines(want) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(names)+1 {
		t.Errorf("%d families, of which %d are expected", len(families), len(names)+1)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// scanner is a scan that the test controls.
type scanner struct {
	t       *testing.T
	started chan struct{}
	results chan error
	running atomic.Int32
}

func newScanner(t *testing.T) *scanner {
	return &scanner{t: t, started: make(chan struct{}, 100), results: make(chan error, 100)}
}

func (s *scanner) scan(ctx context.Context) (*blocks.HostView, error) {
	if s.running.Add(1) > 1 {
		s.t.Error("two scans at once")
	}
	defer s.running.Add(-1)
	s.started <- struct{}{}
	select {
	case err := <-s.results:
		if err != nil {
			return nil, err
		}
		return sample(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestAgentShares: concurrent requests share one scan, and later ones reuse its view until
// it is too old.
func TestAgentShares(t *testing.T) {
	for _, c := range []struct {
		name        string
		maxAge      time.Duration
		scansOfMore int
	}{{"while it is fresh", time.Hour, 0}, {"without any age allowed", 0, 3}} {
		t.Run(c.name, func(t *testing.T) {
			s := newScanner(t)
			a := NewAgent(AgentOptions{Scan: s.scan, MaxAge: c.maxAge})
			var wg sync.WaitGroup
			views := make([]*blocks.HostView, 50)
			for i := range views {
				wg.Go(func() {
					var err error
					if views[i], err = a.View(t.Context(), time.Time{}); err != nil {
						t.Error(err)
					}
				})
			}
			<-s.started
			// The scan may end only once all of them wait. A goroutine that is in View but
			// not yet in the select is not counted.
			for waiting := false; !waiting; time.Sleep(time.Millisecond) {
				waiting = stacks("[select]:\ngithub.com/calico-audit/calico-audit/metrics.(*Agent).View(") == len(views)
			}
			s.results <- nil
			wg.Wait()
			for i := range views {
				if views[i] == nil || views[i] != views[0] {
					t.Fatalf("request %d got another view", i)
				}
			}
			for range 3 {
				s.results <- nil
				if _, err := a.View(t.Context(), time.Time{}); err != nil {
					t.Error(err)
				}
			}
			if got := len(s.started); got != c.scansOfMore {
				t.Errorf("three more requests made %d scans, want %d", got, c.scansOfMore)
			}
		})
	}
}

// TestAgentServesNewer: a view is served again only if the client did not ask for a newer
// one.
func TestAgentServesNewer(t *testing.T) {
	taken := sample().TakenAt
	a := NewAgent(AgentOptions{MaxAge: time.Hour, Scan: func(context.Context) (*blocks.HostView, error) {
		view := sample()
		view.TakenAt, taken = taken, taken.Add(time.Millisecond)
		return view, nil
	}})
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	for _, c := range []struct {
		query  string
		status int
		want   string
	}{
		{"", 200, "2026-01-31T08:00:00.25Z"},
		{"?newerThan=2026-01-31T08:00:00.249Z", 200, "2026-01-31T08:00:00.25Z"},
		{"?newerThan=2026-01-31T08:00:00.25Z", 200, "2026-01-31T08:00:00.251Z"},
		{"", 200, "2026-01-31T08:00:00.251Z"},
		{"?blocks=&newerThan=2026-01-31T08:00:00.251Z", 200, "2026-01-31T08:00:00.252Z"},
		{"?newerThan=yesterday", 400, `parameter newerThan: parsing time "yesterday"`},
	} {
		if status, body := get(t, server.URL+"/hostview"+c.query); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%q: %d %s, want %d %s", c.query, status, body, c.status, c.want)
		}
	}
}

// TestAgentFails: a failed scan is reported with its reason, no older view is served
// instead, and the next scan may succeed.
func TestAgentFails(t *testing.T) {
	s := newScanner(t)
	a := NewAgent(AgentOptions{Scan: s.scan})
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	for i, c := range []struct {
		result error
		status int
	}{{nil, 200}, {errors.New("listing the IPv4 routes: operation not permitted"), 503}, {nil, 200}} {
		s.results <- c.result
		status, body := get(t, server.URL+"/hostview")
		if status != c.status || c.result != nil && !strings.Contains(body, c.result.Error()) {
			t.Errorf("request %d: %d %s", i, status, body)
		}
		if c.status != 200 {
			s.results <- c.result
			if _, body := get(t, server.URL+"/metrics"); strings.Contains(body, "calico_audit_agent_view_timestamp_seconds") || !strings.Contains(body, "\ncalico_audit_agent_scan_errors_total 2\n") {
				t.Errorf("metrics after a scan that failed:\n%s", body)
			}
			s.results <- c.result
		}
		if status, body := get(t, server.URL+"/readyz"); status != c.status || c.result != nil && !strings.Contains(body, c.result.Error()) {
			t.Errorf("readyz after request %d: %d %s", i, status, body)
		}
		if status, _ := get(t, server.URL+"/healthz"); status != 200 {
			t.Errorf("healthz after request %d: %d", i, status)
		}
	}
}

// TestAgentTakesTooLong: a client may leave, and a scan that hangs is cancelled.
func TestAgentTakesTooLong(t *testing.T) {
	s := newScanner(t)
	a := NewAgent(AgentOptions{Scan: s.scan, ScanTimeout: time.Second, MaxAge: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-s.started; leave() }()
	if _, err := a.View(ctx, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever left got %v", err)
	}
	if _, err := a.View(t.Context(), time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("whoever stayed got %v", err)
	}
	s.results <- nil
	if _, err := a.View(t.Context(), time.Time{}); err != nil {
		t.Errorf("the next scan: %v", err)
	}
}

// TestHostView: the response is the view, plain or compressed.
func TestHostView(t *testing.T) {
	a := NewAgent(AgentOptions{Scan: func(context.Context) (*blocks.HostView, error) { return sample(), nil }})
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	for _, c := range []struct {
		accept string
		gzip   bool
	}{{"", false}, {"gzip", true}, {"deflate, gzip;q=0.5", true}, {"gzip;q=0", false}, {"br", false}} {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/hostview", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", c.accept)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var body io.Reader = answer.Body
		if c.gzip {
			if body, err = gzip.NewReader(answer.Body); err != nil {
				t.Fatalf("%q: %v", c.accept, err)
			}
		}
		var got blocks.HostView
		if err := json.NewDecoder(body).Decode(&got); err != nil {
			t.Fatalf("%q: %v", c.accept, err)
		}
		_ = answer.Body.Close()
		if diff := cmp.Diff(*sample(), got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.accept, diff)
		}
		if got, want := answer.Header.Get("Content-Type"), "application/json"; got != want {
			t.Errorf("it is %s", got)
		}
	}
	empty := &blocks.HostView{}
	var text strings.Builder
	if err := writeView(&text, empty); err != nil || !json.Valid([]byte(text.String())) || !strings.Contains(text.String(), `"routes":[]`) {
		t.Errorf("an empty view is %s, %v", &text, err)
	}
}

// TestPages: the served pages, with and without profiles.
func TestPages(t *testing.T) {
	for _, pprof := range []bool{false, true} {
		a := NewAgent(AgentOptions{Scan: func(context.Context) (*blocks.HostView, error) { return sample(), nil }, Pprof: pprof})
		server := httptest.NewServer(a.Handler())
		defer server.Close()
		status, body := get(t, server.URL+"/debug/pprof/cmdline")
		if (status == 200) != pprof {
			t.Errorf("pprof %v: %d %s", pprof, status, body)
		}
		_, page := get(t, server.URL+"/")
		for _, path := range []string{"/hostview", "/metrics", "/healthz", "/readyz", "/debug/pprof/"} {
			if linked := strings.Contains(page, `<a href="`+path+`">`); linked != (pprof || path != "/debug/pprof/") {
				t.Errorf("pprof %v: the first page links to %s: %v", pprof, path, linked)
			}
		}
		if status, _ := get(t, server.URL+"/missing"); status != 404 {
			t.Errorf("a page that there is not: %d", status)
		}
		answer, err := http.Post(server.URL+"/hostview", "text/plain", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST: %s", answer.Status)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}
