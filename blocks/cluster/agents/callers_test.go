package agents

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestStrangersKeepNobodyOut: many made-up tokens, from one address or from many, cause few
// requests to the API server. Authorized callers get in immediately, whether they are new
// or their answer has expired.
func TestStrangersKeepNobodyOut(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if strings.Contains(r.URL.Path, "tokenreviews") {
			_, _ = fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":%t,"audiences":["calico-audit-agent"],"user":{"username":"u"}}}`, strings.Contains(string(body), "good"))
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	}))
	defer server.Close()
	c, err := NewCallers(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, slog.New(slog.DiscardHandler))
	must(t, err)
	guard := c.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(from, token string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hostview", nil)
		r.TLS, r.RemoteAddr = &tls.ConnectionState{}, from+":40000"
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		guard.ServeHTTP(w, r)
		return w.Code
	}
	flood := func(from func(i int) string) (refused int64) {
		var limited atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				switch code := ask(from(i), fmt.Sprintf("made-up-%s-%d", from(i), i)); code {
				case http.StatusTooManyRequests:
					limited.Add(1)
				case http.StatusUnauthorized:
				default:
					t.Errorf("a made-up token got %d", code)
				}
			})
		}
		all.Wait()
		return limited.Load()
	}
	getsIn := func(from, token string) {
		t.Helper()
		began := time.Now()
		if code := ask(from, token); code != http.StatusOK || time.Since(began) > 5*time.Second {
			t.Errorf("%s from %s got %d after %v", token, from, code, time.Since(began))
		}
	}
	getsIn("192.0.2.1", "good-1")
	before := asked.Load()
	if limited := flood(func(int) string { return "192.0.2.66" }); limited < 190 || asked.Load()-before > 20 {
		t.Errorf("of 200 made-up tokens from an address %d were refused, and the API server was asked %d times", limited, asked.Load()-before)
	}
	getsIn("192.0.2.2", "good-2")
	before = asked.Load()
	if limited := flood(func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }); limited < 180 || asked.Load()-before > 30 {
		t.Errorf("of 200 made-up tokens from as many addresses %d were refused, and the API server was asked %d times", limited, asked.Load()-before)
	}
	getsIn("192.0.2.1", "good-1")
	for _, key := range c.answers.Keys() { // as if they had expired
		c.answers.Remove(key)
	}
	before = asked.Load()
	getsIn("192.0.2.66", "good-1") // despite other callers from the same address
	if asked.Load() == before {
		t.Error("the API server was not asked again about a caller whose answer had expired")
	}
}
