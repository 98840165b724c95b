package testcluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// noted is a test that records its errors.
type noted struct {
	testing.TB
	failed []string
}

func (n *noted) Errorf(format string, args ...any) {
	n.failed = append(n.failed, fmt.Sprintf(format, args...))
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestConditional checks that a write which the API server could not reject fails the
// test, no matter who sends it. Requests and responses must pass unchanged.
func TestConditional(t *testing.T) {
	const answer = `{"metadata":{"name":"x","uid":"u1","resourceVersion":"7"}}`
	const patch, merge = "application/json-patch+json", "application/merge-patch+json"
	test := func(field, value string) string {
		return fmt.Sprintf(`{"op":"test","path":"/metadata/%s","value":%q}`, field, value)
	}
	uid, version := test("uid", "u1"), test("resourceVersion", "7")
	for name, c := range map[string]struct {
		method, contentType, body string
		want                      string // must be in the test's error; empty if the test must not fail
	}{
		"a deletion of what was read":        {http.MethodDelete, "", `{"preconditions":{"uid":"u1","resourceVersion":"7"}}`, ""},
		"a deletion in whatever version":     {http.MethodDelete, "", `{"preconditions":{"uid":"u1"}}`, "not conditional"},
		"a deletion of whatever object":      {http.MethodDelete, "", `{"preconditions":{"resourceVersion":"7"}}`, "not conditional"},
		"a deletion without any condition":   {http.MethodDelete, "", `{}`, "not conditional"},
		"a deletion without a body":          {http.MethodDelete, "", ``, "unexpected end of JSON input"},
		"a deletion in a version not read":   {http.MethodDelete, "", `{"preconditions":{"uid":"u1","resourceVersion":"8"}}`, "never read"},
		"a JSON patch of what was read":      {http.MethodPatch, patch, "[" + uid + "," + version + "]", ""},
		"a JSON patch in whatever version":   {http.MethodPatch, patch, "[" + uid + "]", "not conditional"},
		"a JSON patch of whatever object":    {http.MethodPatch, patch, "[" + version + "]", "not conditional"},
		"a JSON patch that sets the version": {http.MethodPatch, patch, strings.ReplaceAll("["+uid+","+version+"]", `"test"`, `"replace"`), "not conditional"},
		"a merge patch of what was read":     {http.MethodPatch, merge, `{"metadata":{"uid":"u1","resourceVersion":"7"}}`, ""},
		"a merge patch in whatever version":  {http.MethodPatch, merge, `{"metadata":{"uid":"u1"}}`, "not conditional"},
		"a replacement of what was read":     {http.MethodPut, "", answer, ""},
		"a replacement in whatever version":  {http.MethodPut, "", `{"metadata":{"uid":"u1"}}`, "not conditional"},
		"a creation":                         {http.MethodPost, "", `{}`, ""},
	} {
		n := &noted{TB: t}
		sent := ""
		rt := Conditional(n)(transport(func(r *http.Request) (*http.Response, error) {
			if r.Body != nil {
				body, _ := io.ReadAll(r.Body)
				sent = string(body)
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(answer))}, nil
		}))
		for _, method := range []string{http.MethodGet, c.method} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://x.invalid/apis/g/v/r/x", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", c.contentType)
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != answer {
				t.Errorf("%s: the answer became %q, %v", name, got, err)
			}
			_ = resp.Body.Close()
		}
		if failed := strings.Join(n.failed, "; "); (failed == "") != (c.want == "") || !strings.Contains(failed, c.want) {
			t.Errorf("%s: %q, want %q", name, failed, c.want)
		}
		if sent != c.body {
			t.Errorf("%s: what was sent became %q", name, sent)
		}
	}
}
