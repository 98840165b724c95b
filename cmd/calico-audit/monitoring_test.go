package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

// monitoring is a Prometheus and an Alertmanager with the shipped rules, and a receiver of
// notifications.
type monitoring struct {
	t          *testing.T
	prometheus string // URL

	mu   sync.Mutex
	told []notice
}

// notice is a notification about one alert.
type notice struct {
	receiver, status, name, severity, summary string
}

// eventTimeout limits the wait for an event; a busy machine is slow.
const eventTimeout = 3 * time.Minute

// monitor starts both, with the rules from a copy of the repository. Prometheus scrapes the
// exporter at an address and further jobs, given as scrape configurations.
func monitor(t *testing.T, tree, exporter string, jobs ...string) *monitoring {
	t.Helper()
	prometheus := testenv.Program(t, "prometheus", "prometheus")
	alertmanager := testenv.Program(t, "prometheus-alertmanager", "prometheus-alertmanager")
	m := &monitoring{t: t}
	hook := httptest.NewServer(http.HandlerFunc(m.hear))
	t.Cleanup(hook.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("alertmanager.yml", fmt.Sprintf(`
route:
  receiver: ticket
  group_by: ["..."]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
  routes:
  - matchers: [severity = "critical"]
    receiver: page
receivers:
- name: ticket
  webhook_configs: [{url: "%[1]s/ticket", send_resolved: true}]
- name: page
  webhook_configs: [{url: "%[1]s/page", send_resolved: true}]
`, hook.URL))
	alerts := serve(t, "/-/ready", func(listen string) *exec.Cmd {
		return exec.Command(alertmanager, "--config.file="+config, "--storage.path="+filepath.Join(dir, "alertmanager"),
			"--web.listen-address="+listen, "--cluster.listen-address=")
	})
	write("calico-audit.rules.yaml", hurried(t, tree))
	config = write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [calico-audit.rules.yaml]
scrape_configs:
- job_name: calico-audit
  static_configs: [{targets: [%q]}]
%s
alerting:
  alertmanagers:
  - static_configs: [{targets: [%q]}]
`, exporter, strings.Join(jobs, "\n"), alerts))
	m.prometheus = "http://" + serve(t, "/-/ready", func(listen string) *exec.Cmd {
		return exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+listen)
	})
	return m
}

// hurried returns the shipped rules with the shortest waiting times and averages.
func hurried(t *testing.T, tree string) string {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join(tree, "examples", "prometheus", "calico-audit.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wait := regexp.MustCompile(`(?m)^( +for:) .*$`)
	if n := len(wait.FindAll(rules, -1)); n < 10 {
		t.Fatalf("only %d rules wait", n)
	}
	return strings.ReplaceAll(string(wait.ReplaceAll(rules, []byte("$1 1s"))), "[5m]", "[5s]")
}

// serve starts a server on a free loopback port, waits until it is ready, and stops it at
// the end of the test. It returns the address.
func serve(t *testing.T, ready string, command func(listen string) *exec.Cmd) string {
	t.Helper()
	var said []byte
	for range 3 { // another process may take the port in between
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		cmd := command(address)
		log, err := os.CreateTemp(t.TempDir(), "log")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
			_ = log.Close()
		})
		for deadline := time.Now().Add(eventTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if status, _, err := get(t.Context(), "http://"+address+ready); err == nil && status == http.StatusOK {
				return address
			}
			select {
			case <-ended:
				deadline = time.Now()
			default:
			}
		}
		said, _ = os.ReadFile(log.Name())
	}
	t.Fatalf("a server did not start:\n%s", said)
	return ""
}

func get(ctx context.Context, address string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// hear receives notifications from Alertmanager.
func (m *monitoring) hear(_ http.ResponseWriter, r *http.Request) {
	var message struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		m.t.Errorf("what Alertmanager sent: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range message.Alerts {
		m.told = append(m.told, notice{strings.TrimPrefix(r.URL.Path, "/"), a.Status, a.Labels["alertname"], a.Labels["severity"], a.Annotations["summary"]})
	}
}

// state returns the last notification about an alert; nil if there was none.
func (m *monitoring) state(name string) *notice {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last *notice
	for _, n := range m.told {
		if n.name == name {
			last = &n
		}
	}
	return last
}

// firing reports whether the last notification says that an alert is firing.
func (m *monitoring) firing(name string) bool {
	n := m.state(name)
	return n != nil && n.status == "firing"
}

// heard lists all notifications.
func (m *monitoring) heard() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, n := range m.told {
		fmt.Fprintf(&b, "%-8s %-6s %-8s %s: %s\n", n.status, n.receiver, n.severity, n.name, n.summary)
	}
	return b.String()
}

// await waits for a condition.
func (m *monitoring) await(what string, holds func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(eventTimeout); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("waited in vain until %s; what was told:\n%s", what, m.heard())
		}
	}
}

// query returns the number of series of an expression.
func (m *monitoring) query(expr string) int {
	m.t.Helper()
	return len(m.series(expr, time.Now()))
}

// series returns the values of an expression at a time, by labels.
func (m *monitoring) series(expr string, at time.Time) map[string]float64 {
	m.t.Helper()
	status, body, err := get(m.t.Context(), m.prometheus+"/api/v1/query?"+url.Values{"query": {expr}, "time": {at.Format(time.RFC3339Nano)}}.Encode())
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any // a time, and a number as a string
			}
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || status != http.StatusOK {
		m.t.Fatalf("asking Prometheus for %s: %d %v %s", expr, status, err, body)
	}
	out := map[string]float64{}
	for _, r := range answer.Data.Result {
		value, err := strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			m.t.Fatal(err)
		}
		out[fmt.Sprint(r.Metric)] = value
	}
	return out
}

// runExporter starts the exporter as a process and returns its address. The process is
// stopped at the end of the test and must exit without an error.
func runExporter(t *testing.T, args ...string) string {
	t.Helper()
	cmd, _ := program(t, exporterArgs(args...)...)
	cmd.Stderr = nil
	return startExporter(t, cmd)
}

func exporterArgs(args ...string) []string {
	return append([]string{"exporter", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
}

// startExporter is runExporter for a given command with exporterArgs.
func startExporter(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	read := make(chan struct{})
	var said strings.Builder
	go func() {
		defer close(read)
		defer close(address)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && strings.HasPrefix(line.Msg, "Listening") {
				address <- line.Address
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-read
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 0 || t.Failed() {
			t.Errorf("the exporter ended with %d and said:\n%s", got, &said)
		}
	})
	where, ok := <-address
	if !ok {
		t.Fatal("the exporter ended before it listened")
	}
	return where
}
