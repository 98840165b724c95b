package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestPodsSetNoClock: as a proxy, the API server forwards a pod's Date header. That header does not
// count as the server's time, whatever the pod's status code.
func TestPodsSetNoClock(t *testing.T) {
	ahead, code := time.Hour, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/proxy/") {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			w.WriteHeader(code)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	c, err := newAPIClient(&rest.Config{Host: server.URL}, nil)
	must(t, err)
	read := func() {
		t.Helper()
		must(t, c.get(t.Context(), "/api/v1/nodes", nil, "application/json", func(io.Reader) error { return nil }))
		first, last := c.clock.dates()
		for _, told := range []time.Time{first, last, c.clock.At(time.Now())} {
			if off := time.Since(told); off < -time.Second || off > time.Minute {
				t.Errorf("the server's time is told as %v, %v away", told, off)
			}
		}
	}
	read()
	for _, answer := range []struct {
		ahead time.Duration
		code  int
	}{{time.Hour, http.StatusOK}, {-time.Hour, http.StatusOK}, {time.Hour, http.StatusInternalServerError}, {time.Hour, http.StatusFound}} {
		ahead, code = answer.ahead, answer.code
		body, err := (&Pods{client: c}).Get(t.Context(), "kube-system", "agent:1", "/hostview", nil)
		if err == nil {
			must(t, body.Close())
		}
		if (err == nil) != (code == http.StatusOK) {
			t.Errorf("%d: %v", code, err)
		}
		read()
	}
}
