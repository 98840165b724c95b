package live_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// healthy is a snapshot with one pool of 4096 addresses in 64 blocks, taken at healthyAt,
// when 4032 addresses and 60 blocks were left.
const healthy, healthyAt = "../../../examples/snapshots/healthy", "2026-11-21T03:07:19Z"

// backfilled starts a Prometheus with a month of samples from two replicas of the exporter
// of cluster a: two addresses fewer are left each day, and 300 are taken each night. For
// some days it also has an exporter of cluster b. It returns the URL.
func backfilled(t *testing.T) string {
	t.Helper()
	prometheus, promtool := testenv.Program(t, "prometheus", "prometheus"), testenv.Program(t, "promtool", "prometheus")
	now, err := time.Parse(time.RFC3339, healthyAt)
	if err != nil {
		t.Fatal(err)
	}
	const each, month = 30 * time.Minute, 30 * 24 * time.Hour
	var text strings.Builder
	for _, family := range []struct {
		name, labels string
		value        func(left float64) float64
	}{
		{"calico_audit_pool_allocatable_blocks", "", func(float64) float64 { return 60 }},
		{"calico_audit_pool_blocks", `,state="claimed"`, func(float64) float64 { return 4 }},
		{"calico_audit_pool_blocks", `,state="free"`, func(float64) float64 { return 60 }},
		{"calico_audit_pool_blocks", `,state="reserved"`, func(float64) float64 { return 0 }},
		{"calico_audit_pool_available_addresses", "", func(left float64) float64 { return left }},
		{"calico_audit_pool_capacity_addresses", "", func(float64) float64 { return 4096 }},
		{"calico_audit_pool_reserved_addresses", "", func(float64) float64 { return 0 }},
	} {
		if family.labels == "" || strings.Contains(family.labels, "claimed") {
			fmt.Fprintf(&text, "# TYPE %s gauge\n", family.name)
		}
		for _, target := range []string{`cluster="a",instance="1"`, `cluster="a",instance="2"`, `cluster="b",instance="3"`} {
			for ago := month; ago >= 0; ago -= each {
				left := 4032 + 2*float64(int(ago.Hours()/24))
				if at := now.Add(-ago); at.Hour() < 3 {
					left -= 300
				}
				if strings.Contains(target, "b") && ago > 48*time.Hour {
					continue
				}
				fmt.Fprintf(&text, "%s{ippool=\"default-ipv4-ippool\",ip_family=\"IPv4\",job=\"calico-audit\",%s%s} %g %d\n", family.name, target, family.labels, family.value(left), now.Add(-ago).Unix())
			}
		}
	}
	text.WriteString("# EOF\n")
	dir := t.TempDir()
	samples, config := filepath.Join(dir, "samples"), filepath.Join(dir, "prometheus.yml")
	for path, content := range map[string]string{samples: text.String(), config: "global: {}\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "--max-block-duration=1000h", "openmetrics", samples, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	cmd := exec.Command(prometheus, "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if answer, err := http.Get("http://" + address + "/-/ready"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("Prometheus does not get ready")
		}
	}
}

// TestRunwayFromPrometheus: a month of samples in a real Prometheus gives the runway in
// every output. If the query fails, or it is unclear which cluster is meant, there is still
// a report, with the reason.
func TestRunwayFromPrometheus(t *testing.T) {
	url := backfilled(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you", http.StatusUnauthorized)
	}))
	defer refusing.Close()

	got := clitest.Run(t, "report", "-f", healthy, "--prometheus", url, "--prometheus-selector", `{cluster="a"}`, "-o", "json")
	var rep audit.Report
	if err := json.Unmarshal([]byte(got.Stdout), &rep); err != nil || got.Code != exit.CodeOK || len(rep.Pools) != 1 {
		t.Fatalf("exit code %d, %v: %s", got.Code, err, got.Err)
	}
	w := rep.Pools[0].Runway
	if w == nil || w.Blocks.Status != runway.Steady || w.Addresses.Status != runway.Declining {
		t.Fatalf("%+v", w)
	}
	// 300 of the 4032 are taken each night.
	if a := w.Addresses; a.PerDay < 1.9 || a.PerDay > 2.1 || *a.Days < 1800 || *a.Days > 1950 || *a.EarliestDays > *a.Days || *a.LatestDays < *a.Days || a.Basis.Samples < 700 || a.Basis.Days != 30 {
		t.Errorf("%s", a.Sentence("addresses"))
	}
	if source := w.Addresses.Basis.Source; source != "Prometheus "+url+`, series {cluster="a", job="calico-audit"}` {
		t.Error(source)
	}
	for _, format := range []string{"table", "markdown", "html"} {
		got := clitest.Run(t, "report", "-f", healthy, "--prometheus", url, "--prometheus-selector", `cluster="a"`, "-o", format)
		if got.Code != exit.CodeOK || !strings.Contains(strings.Join(strings.Fields(got.Stdout), " "), "fewer a day over 30 days (72") || !strings.Contains(got.Stdout, "blocks: no lasting decline") {
			t.Errorf("-o %s: exit code %d: %s%s", format, got.Code, got.Stdout, got.Err)
		}
	}
	got = clitest.Run(t, "explain", "pool", "default-ipv4-ippool", "-f", healthy, "--prometheus", url, "--prometheus-selector", `cluster="a"`)
	if got.Code != exit.CodeOK || !strings.Contains(got.Stdout, "addresses run out in about 18") {
		t.Errorf("exit code %d: %s%s", got.Code, got.Stdout, got.Err)
	}

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"two clusters":     {[]string{url}, `series of several clusters: the label cluster is "a" and "b": choose one with --prometheus-selector 'cluster="a"'`},
		"no such cluster":  {[]string{url, "--prometheus-selector", `cluster="c"`}, `no series calico_audit_pool_allocatable_blocks{cluster="c"} within 30d: is the exporter scraped, and does --prometheus-selector match?`},
		"bad selector":     {[]string{url, "--prometheus-selector", `cluster=a`}, "parse error"},
		"unauthorized":     {[]string{refusing.URL}, "401 (who are you)"},
		"no Prometheus":    {[]string{url + "/elsewhere"}, "404"},
		"nothing listens":  {[]string{closed.URL}, "connection refused"},
		"password is kept": {[]string{strings.Replace(closed.URL, "http://", "http://me:secret@", 1)}, "connection refused"},
	} {
		got := clitest.Run(t, append([]string{"report", "-f", healthy, "--prometheus"}, c.args...)...)
		if got.Code != exit.CodeUnread || strings.Count(got.Err, "\n") != 1 || !strings.Contains(got.Err, c.want) || strings.Contains(got.Err+got.Stdout, "secret") {
			t.Errorf("%s: exit code %d: %s, want %q", name, got.Code, got.Err, c.want)
		}
		if !strings.Contains(got.Stdout, "default-ipv4-ippool  10.80.0.0/20") || !strings.Contains(got.Stdout, "prometheus: ") || strings.Contains(got.Stdout, "RUNWAY") {
			t.Errorf("%s: %s", name, got.Stdout)
		}
	}
}
