package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Responses are requested uncompressed until one has arrived slowly.
func TestCompressionOnSlowLinks(t *testing.T) {
	for _, c := range []struct {
		what        string
		size, parts int
		pause       time.Duration // before the second and later parts, or before the only one
		want        bool
	}{
		{"a fast answer", 2 << 20, 2, 0, false},
		{"a slow one", 2 << 20, 3, 300 * time.Millisecond, true},
		{"a slow one of little, which says nothing", 100 << 10, 3, 300 * time.Millisecond, false},
		{"one that was long in coming", 2 << 20, 1, 300 * time.Millisecond, false},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Header.Get("Accept-Encoding"))
			if c.parts == 1 {
				time.Sleep(c.pause)
			}
			for i := range c.parts {
				if i > 0 {
					_ = http.NewResponseController(w).Flush()
					time.Sleep(c.pause)
				}
				_, _ = w.Write(make([]byte, c.size/c.parts))
			}
		}))
		defer server.Close()
		client, err := newAPIClient(&rest.Config{Host: server.URL}, nil)
		must(t, err)
		for range 2 {
			must(t, client.get(t.Context(), "/", nil, "application/json", func(body io.Reader) error {
				_, err := io.Copy(io.Discard, body)
				return err
			}))
		}
		diff(t, c.what, []string{"identity", map[bool]string{true: "gzip", false: "identity"}[c.want]}, asked)
	}
}
