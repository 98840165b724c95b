package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

const inhibitName = "calico-audit.inhibit.yaml"

// TestInhibition: a real Alertmanager with the shipped inhibit rules notifies once of one
// shortage, and still of everything else.
func TestInhibition(t *testing.T) {
	of := func(pool string, labels ...string) (out []map[string]string) {
		for _, l := range labels {
			alert := map[string]string{"job": "calico-audit", "cluster": "east", "ippool": pool, "severity": "warning"}
			for i, part := range strings.Fields(l) {
				if key, value, ok := strings.Cut(part, "="); ok {
					alert[key] = value
				} else if i == 0 {
					alert["alertname"] = part
				}
			}
			out = append(out, alert)
		}
		return out
	}
	ahead := []string{"CalicoPoolFewFreeBlocks", "CalicoPoolBlocksRunOut", "CalicoPoolRunway resource=blocks", "CalicoPoolUndersized"}
	harm := []string{"CalicoNodeWithoutBlock check=node/no-block", "CalicoAddressesBorrowed check=ip/borrowed", "CalicoTrafficMayBeBlackholed check=route/blackhole"}
	elsewhere := of("other", "CalicoPoolFewFreeBlocks")
	elsewhere = append(elsewhere, of("pods", "CalicoPoolFewFreeBlocks cluster=west")...)
	for name, c := range map[string]struct {
		alerts []map[string]string
		want   []string
	}{
		"no node gets a block": {
			slices.Concat(of("pods", "CalicoPoolOutOfBlocks severity=critical", "CalicoPodsWithoutAddress severity=critical", "CalicoTunnelAddressBorrowed",
				"CalicoTrafficBlackholed severity=critical check=route/blackhole", "CalicoPoolOutOfAddresses"), of("pods", ahead...), of("pods", harm...), of("", "CalicoNodesMayNotFit"), elsewhere),
			[]string{"east other CalicoPoolFewFreeBlocks", "east pods CalicoPoolOutOfBlocks", "west pods CalicoPoolFewFreeBlocks"},
		},
		"no pod gets an address": {
			of("pods", "CalicoPoolOutOfAddresses severity=critical", "CalicoPoolOutOfBlocks severity=critical", "CalicoPodsWithoutAddress severity=critical",
				"CalicoPoolFewAddresses", "CalicoPoolRunway resource=addresses", "CalicoPoolRunway resource=blocks"),
			[]string{"east pods CalicoPoolOutOfAddresses"},
		},
		"a shortage ahead": {
			slices.Concat(of("pods", ahead...), of("pods", "CalicoPoolRunway resource=addresses")),
			[]string{"east pods CalicoPoolBlocksRunOut", "east pods CalicoPoolRunway"},
		},
		"borrowed addresses": {
			slices.Concat(of("pods", harm...), of("pods", "CalicoTrafficBlackholed severity=critical check=affinity/not-owner")),
			[]string{"east pods CalicoTrafficBlackholed", "east pods CalicoTrafficMayBeBlackholed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, notified(t, c.alerts)); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInhibitRulesNameAlerts: the inhibit rules name existing alerts, and no rule silences
// a critical alert by a warning.
func TestInhibitRulesNameAlerts(t *testing.T) {
	alerts, _ := shippedRules(t)
	for _, m := range regexp.MustCompile(`alertname =~? "([^"]*)"`).FindAllStringSubmatch(string(example(t, "prometheus", inhibitName)), -1) {
		for _, name := range strings.Split(m[1], "|") {
			if !slices.ContainsFunc(alerts, func(a rule) bool { return a.Alert == name }) {
				t.Errorf("there is no alert %s", name)
			}
		}
	}
}

// notified returns which of the alerts an Alertmanager notifies of, as "cluster pool name".
func notified(t *testing.T, alerts []map[string]string) []string {
	t.Helper()
	var mu sync.Mutex
	told := map[string]bool{}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct {
			Alerts []struct{ Labels map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Errorf("what Alertmanager sent: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range message.Alerts {
			told[a.Labels["cluster"]+" "+a.Labels["ippool"]+" "+a.Labels["alertname"]] = true
		}
	}))
	defer hook.Close()
	url := startAlertmanager(t, fmt.Sprintf(`
route: {receiver: hook, group_by: [cluster, ippool], group_wait: 2s, group_interval: 1s}
receivers:
- name: hook
  webhook_configs: [{url: %q}]
`, hook.URL)+string(example(t, "prometheus", inhibitName)))
	var posted []map[string]any
	for _, labels := range append(alerts, map[string]string{"alertname": "last", "cluster": "", "ippool": ""}) {
		posted = append(posted, map[string]any{"labels": labels})
	}
	body, err := json.Marshal(posted)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/api/v2/alerts", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("posting alerts: %s", resp.Status)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		mu.Lock()
		heard := told["  last"]
		mu.Unlock()
		if heard {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("Alertmanager does not notify")
		}
	}
	time.Sleep(3 * time.Second) // groups notify independently
	mu.Lock()
	defer mu.Unlock()
	delete(told, "  last")
	return slices.Sorted(maps.Keys(told))
}

// startAlertmanager starts an Alertmanager with a configuration, until the test ends, and
// returns its URL.
func startAlertmanager(t *testing.T, config string) string {
	t.Helper()
	program := testenv.Program(t, "prometheus-alertmanager", "prometheus-alertmanager")
	dir := t.TempDir()
	path := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file="+path, "--storage.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if resp, err := http.Get("http://" + address + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
	}
	t.Fatalf("Alertmanager did not start:\n%s", &log)
	return ""
}
