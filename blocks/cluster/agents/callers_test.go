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
	"testing/synctest"
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

// TestTokensAreTakenOverTLSAlone: a token that arrived without TLS may be stolen, so the API server
// is not even asked about it.
func TestTokensAreTakenOverTLSAlone(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	c, err := NewCallers(&rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler))
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hostview", nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	c.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") })).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || asked > 0 {
		t.Errorf("it got %d, and the API server was asked %d times", w.Code, asked)
	}
}

// answersOf is a transport that answers reviews: every token belongs to a user, and may reports
// whether that user may call.
type answersOf func() (may bool)

func (f answersOf) RoundTrip(r *http.Request) (*http.Response, error) {
	text := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"audiences":["calico-audit-agent"],"user":{"username":"u"}}}`
	if !strings.Contains(r.URL.Path, "tokenreviews") {
		text = fmt.Sprintf(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, f())
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// TestHowLongAnAnswerHolds: a refused caller is reviewed again within a minute, so that a new right
// takes effect soon. A revoked right ends within minutes.
func TestHowLongAnAnswerHolds(t *testing.T) {
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			may := first
			cfg := &rest.Config{Host: "http://memory.invalid", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return answersOf(func() bool { return may }) })
			c, err := NewCallers(cfg, slog.New(slog.DiscardHandler))
			must(t, err)
			gets := func() bool {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hostview", nil)
				r.TLS = &tls.ConnectionState{}
				r.Header.Set("Authorization", "Bearer good")
				w := httptest.NewRecorder()
				c.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
				return w.Code == http.StatusOK
			}
			if gets() != first {
				t.Fatalf("asked first: %t", !first)
			}
			may = !first
			holds := map[bool]time.Duration{false: 40 * time.Second, true: 6 * time.Minute}[first]
			time.Sleep(time.Second)
			if gets() != first {
				t.Errorf("the answer %t does not hold for a second", first)
			}
			time.Sleep(holds)
			if gets() == first {
				t.Errorf("the answer %t holds for %s", first, holds)
			}
		})
	}
}
