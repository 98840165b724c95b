package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestExporterAsksPrometheus: an exporter continues to ask Prometheus while the cluster is
// unreachable.
func TestExporterAsksPrometheus(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	asked := make(chan string, 1)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.FormValue("query"):
		default:
		}
		time.Sleep(100 * time.Millisecond) // longer than it takes to start and stop
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer prometheus.Close()
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan outcome)
	go func() {
		done <- calicoAuditUntil(t, ctx, "exporter", "--kubeconfig", config, "--listen", "127.0.0.1:0", "--prometheus", prometheus.URL, "--prometheus-selector", `cluster="a"`)
	}()
	select {
	case q := <-asked:
		if !strings.Contains(q, `calico_audit_pool_allocatable_blocks{cluster="a"}`) {
			t.Errorf("it asks %q", q)
		}
		time.Sleep(time.Second)
	case <-ctx.Done():
		t.Error("Prometheus was not asked")
	}
	cancel()
	if got := <-done; !strings.Contains(got.err, "503") {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
}
