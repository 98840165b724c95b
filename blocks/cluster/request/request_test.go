package request

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
)

// answered sends a request to a server that runs handler.
func answered(t *testing.T, o Options, handler http.HandlerFunc) (string, error) {
	t.Helper()
	s := httptest.NewServer(handler)
	defer s.Close()
	c, err := NewClient(&rest.Config{Host: s.URL}, o)
	if err != nil {
		t.Fatal(err)
	}
	body, err := Stream(t.Context(), c.Get().AbsPath("/x").MaxRetries(0), nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

// TestErrors: an error response is known by the status code of HTTP, whatever its body says and
// however it ends.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		cut  bool
		want string
	}{
		"a Status":                   {`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no way","code":403}`, false, ": no way"},
		"a Status with another code": {`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no way","code":500}`, false, ": no way"},
		"a Status of success":        {`{"kind":"Status","apiVersion":"v1","status":"Success"}`, false, ""},
		"text":                       {"no way", false, ": no way"},
		"a page":                     {"<html>no way</html>", false, ""},
		"nothing":                    {"", false, ""},
		"an endless body":            {strings.Repeat("x", 4<<20), false, ""},
		"a body that breaks off":     {"no", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := answered(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				if strings.HasPrefix(c.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				if c.cut {
					w.Header().Set("Content-Length", "100")
				}
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, c.body)
			})
			if want := "the API server answered 403 Forbidden" + c.want; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if s := StatusOf(err); s == nil || !s.Refused() || !errors.Is(err, blocks.ErrDenied) {
				t.Errorf("it does not count as refused: %v", err)
			}
		})
	}
}

// TestNoResponse: without a response there is no status code, and the URL is left out.
func TestNoResponse(t *testing.T) {
	_, err := answered(t, Options{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err == nil || StatusOf(err) != nil || strings.Contains(err.Error(), "/x") {
		t.Errorf("got %v", err)
	}
}

// TestLastResponseCounts: the status code of an earlier response does not count if client-go's
// retry gets no response.
func TestLastResponseCounts(t *testing.T) {
	sent := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sent++; sent > 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	c, err := NewClient(&rest.Config{Host: s.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Stream(t.Context(), c.Get().AbsPath("/x").MaxRetries(1), nil); err == nil || StatusOf(err) != nil || sent < 2 {
		t.Errorf("got %v after %d requests", err, sent)
	}
}

// TestAbsurdRetryAfter: an absurd Retry-After does not prevent retries.
func TestAbsurdRetryAfter(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"7": 7 * time.Second, "3600": 30 * time.Second, "-5": 0, "99999999999999999999": 0, "soon": 0,
	} {
		_, err := answered(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", said)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		if s := StatusOf(err); s == nil || s.RetryAfter() != want {
			t.Errorf("%q became %v (%v)", said, s.RetryAfter(), err)
		}
	}
}

// TestRedirects: redirects are followed, unless they must not be.
func TestRedirects(t *testing.T) {
	redirect := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" {
			http.Redirect(w, r, "/y", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "elsewhere")
	}
	saw := 0
	if text, err := answered(t, Options{Saw: func(*http.Response) { saw++ }}, redirect); text != "elsewhere" || err != nil || saw != 2 {
		t.Errorf("got %q, %v and %d responses", text, err, saw)
	}
	if text, err := answered(t, Options{NoRedirects: true}, redirect); err == nil || StatusOf(err).Code != http.StatusFound {
		t.Errorf("got %q, %v", text, err)
	}
}
